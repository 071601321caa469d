//! The library's side: a slot in the file, and what the class leaves for it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::fence;

use rustix::process::{Pid, getppid};

use super::process::Identity;
use super::{Class, ClassError, ClassFile, IDLE_MS, Member};
use crate::configuration::{ClassName, FilePath, Ratio};

/// A member gets room beyond its bytes in steps of at most this part of a budget.
const STEP_PART: u64 = 16;
/// Or of this many bytes, if that is more.
const STEP_BYTES_MIN: u64 = 64 << 10;

/// A process in a class.
#[derive(Debug)]
pub struct Membership {
    file: ClassFile,
    name: ClassName,
    identity: Identity,
    slot: usize,
    class: usize,
    generation: u32,
    /// Bytes that a forked child shares with its parent, while that lives.
    inherited: Option<Inherited>,
}

#[derive(Debug)]
struct Inherited {
    parent: Option<Pid>,
    live_bytes: [u64; 2],
}

/// What a class leaves for a member until its next tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The ratio of the class, if it sets one.
    pub ratio: Option<Ratio>,
    /// Bytes that the member may have in DRAM and in far memory; [`u64::MAX`] is no limit.
    pub limit_bytes: [u64; 2],
}

impl Membership {
    /// Takes a slot in the class `name` of the file at `path`.
    ///
    /// # Errors
    ///
    /// The file cannot be used, has no such class, or has no free slot.
    pub fn join(path: &FilePath, name: &ClassName) -> Result<Membership, ClassError> {
        let file = ClassFile::open(path)?;
        let (class, generation) = file.find(name).ok_or(ClassError::NoClass)?;
        let identity = Identity::own();
        let slot = claim(&file, identity).ok_or(ClassError::Full)?;
        let member = &file.table().members[slot];
        // The class comes last: with it, the grants count.
        for bytes in member.live_bytes.iter().chain(&member.granted_bytes) {
            bytes.store(0, Relaxed);
        }
        member.ticked_ms.store(0, Relaxed);
        member.class.store(u64::from(generation) << 32 | class as u64, Release);
        Ok(Membership { file, name: *name, identity, slot, class, generation, inherited: None })
    }

    /// The name of the class.
    pub fn name(&self) -> &ClassName {
        &self.name
    }

    /// Tells how many bytes the member has in each medium, and asks for more room.
    ///
    /// # Errors
    ///
    /// The class or the file was deleted, or the file was damaged. The caller may try [`Membership::join_again`] then.
    pub fn tick(&self, live_bytes: [u64; 2], now_ms: u64) -> Result<Share, ClassError> {
        self.file.check()?;
        let table = self.file.table();
        let (class, member) = (&table.classes[self.class], &table.members[self.slot]);
        if class.generation.load(Acquire) != self.generation {
            return Err(ClassError::NoClass);
        }
        if member.owner.load(Relaxed) != self.identity.to_word() {
            return Err(ClassError::Damaged);
        }
        let mut limit_bytes = [0; 2];
        for (medium, limit) in limit_bytes.iter_mut().enumerate() {
            let inherited = self.inherited_bytes(medium);
            let own = live_bytes[medium].saturating_sub(inherited);
            member.live_bytes[medium].store(own, Relaxed);
            *limit = self.grant(class, member, medium, own, now_ms).saturating_add(inherited);
        }
        member.ticked_ms.store(now_ms, Relaxed);
        Ok(Share { ratio: Ratio::of_word(class.ratio.load(Relaxed)), limit_bytes })
    }

    /// Takes room for `own` bytes and a step more, as far as the other members leave it.
    fn grant(&self, class: &Class, member: &Member, medium: usize, own: u64, now_ms: u64) -> u64 {
        let limit = class.limit_bytes[medium].load(Relaxed);
        let granted = &member.granted_bytes[medium];
        if limit == u64::MAX {
            granted.store(own, Relaxed);
            return limit;
        }
        let (others, members) = self.others(medium, now_ms);
        let room = limit.saturating_sub(own).saturating_sub(others);
        let mut step = (room / (members + 1)).min((limit / STEP_PART).max(STEP_BYTES_MIN));
        loop {
            granted.store(own + step, SeqCst);
            fence(SeqCst);
            // Another member may have added up the grants before it could see this one, but then this one sees that.
            let (others, _) = self.others(medium, now_ms);
            if step == 0 || (own + step).saturating_add(others) <= limit {
                return own + step;
            }
            // A member without any room may have to refuse its program, so it asks for less.
            step /= 2;
        }
    }

    /// The bytes that other members hold, and the number of these members. The dead hold none.
    fn others(&self, medium: usize, now_ms: u64) -> (u64, u64) {
        let (mut bytes, mut count) = (0u64, 0);
        let class = u64::from(self.generation) << 32 | self.class as u64;
        for (slot, member) in self.file.table().members.iter().enumerate() {
            let Some(owner) = Identity::of_word(member.owner.load(Acquire)) else { continue };
            if slot == self.slot || member.class.load(Acquire) != class {
                continue;
            }
            let is_idle = now_ms.saturating_sub(member.ticked_ms.load(Relaxed)) > IDLE_MS;
            if is_idle && !owner.is_alive() {
                continue;
            }
            let held = if is_idle { &member.live_bytes } else { &member.granted_bytes };
            bytes = bytes.saturating_add(held[medium].load(SeqCst));
            count += 1;
        }
        (bytes, count)
    }

    fn inherited_bytes(&self, medium: usize) -> u64 {
        let inherited = self.inherited.as_ref().filter(|inherited| inherited.parent == getppid());
        inherited.map_or(0, |inherited| inherited.live_bytes[medium])
    }

    /// Takes a slot in the class of the same name, after [`Membership::tick`] has failed.
    ///
    /// # Errors
    ///
    /// As for [`Membership::join`]. The membership stays lost.
    pub fn join_again(&mut self) -> Result<(), ClassError> {
        self.give_back();
        let again = Membership::join(&self.file.path, &self.name)?;
        *self = Membership { inherited: self.inherited.take(), ..again };
        Ok(())
    }

    /// Takes a slot for a forked child beside that of its parent. The bytes of the time before the fork count for the
    /// parent while it lives.
    ///
    /// # Errors
    ///
    /// The file was damaged, or has no free slot. The child's next [`Membership::tick`] fails then.
    pub fn fork(&mut self, live_bytes: [u64; 2]) -> Result<(), ClassError> {
        // The parent that joined, and not one that has adopted the child meanwhile.
        let parent = Pid::from_raw(self.identity.pid as i32);
        self.inherited = Some(Inherited { parent, live_bytes });
        self.identity = Identity::own();
        self.file.check()?;
        self.slot = claim(&self.file, self.identity).ok_or(ClassError::Full)?;
        let member = &self.file.table().members[self.slot];
        for bytes in member.live_bytes.iter().chain(&member.granted_bytes) {
            bytes.store(0, Relaxed);
        }
        member.class.store(u64::from(self.generation) << 32 | self.class as u64, Release);
        Ok(())
    }

    /// Gives the slot back, as a process does that ends in order.
    pub fn leave(self) {
        self.give_back();
    }

    fn give_back(&self) {
        if self.file.check().is_err() {
            return;
        }
        let own = self.identity.to_word();
        // Fails if the file is damaged, and nothing else would help then.
        let _ = self.file.table().members[self.slot].owner.compare_exchange(own, 0, AcqRel, Relaxed);
    }
}

/// Takes a free slot, or that of a dead process.
fn claim(file: &ClassFile, identity: Identity) -> Option<usize> {
    let members = &file.table().members;
    let take = |slot: &usize, from| {
        members[*slot].owner.compare_exchange(from, identity.to_word(), AcqRel, Relaxed).is_ok()
    };
    let free = (0..members.len()).find(|slot| take(slot, 0));
    free.or_else(|| {
        (0..members.len()).find(|slot| {
            let word = members[*slot].owner.load(Acquire);
            Identity::of_word(word).is_some_and(|owner| !owner.is_alive()) && take(slot, word)
        })
    })
}
