//! Databases by name: `ZT.DB.OPEN` `ZT.DB.CLOSE` `ZT.DB.LIST` `ZT.DB.USE`.

use super::Session;
use crate::backend::{DatabaseName, Databases};
use crate::refusal::Refusal;
use crate::request::Args;

/// The databases of the server's store.
fn databases<'a>(session: &Session<'a>) -> Result<&'a dyn Databases, Refusal> {
    let databases = session.shared.backend.databases();
    databases.ok_or(Refusal::fixed("ERR this backend has one database; serve --backend rocksdb for more"))
}

fn name<'a>(text: &'a [u8]) -> Result<DatabaseName<'a>, Refusal> {
    DatabaseName::new(text).ok_or(Refusal::fixed(
        "ERR a database has a name of 1 to 64 ASCII letters, digits, '-' and '_', which begins with a letter or digit",
    ))
}

/// `ZT.DB.OPEN name [option value ...]`: opens a database, or makes it.
pub(super) fn open(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let name = name(args.at(1))?;
    if !args.len().is_multiple_of(2) {
        return Err(Refusal::SYNTAX);
    }
    let options: Vec<(&[u8], &[u8])> = args.from(2).step_by(2).zip(args.from(3).step_by(2)).collect();
    databases(session)?.open(name, &options)?;
    session.reply.ok();
    Ok(())
}

/// `ZT.DB.CLOSE name`: closes a database that no client uses.
pub(super) fn close(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    databases(session)?.close(name(args.at(1))?)?;
    session.reply.ok();
    Ok(())
}

/// `ZT.DB.LIST`: the databases, and whether they are open.
pub(super) fn list(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    let list = databases(session)?.list()?;
    session.reply.map(list.len());
    for database in list {
        session.reply.bulk(database.name.as_bytes());
        session.reply.bulk(if database.is_open { b"open" } else { b"closed" });
    }
    Ok(())
}

/// `ZT.DB.USE name`: the commands of this connection are about that database from now on.
pub(super) fn choose(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let found = databases(session)?.find(name(args.at(1))?)?;
    session.client.chosen = Some(found);
    session.reply.ok();
    Ok(())
}
