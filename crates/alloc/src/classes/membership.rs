//! The library's side: a slot in the file, and what the class leaves for it.

use core::mem::{forget, replace};
use core::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use core::sync::atomic::fence;

use rustix::process::{Pid, getppid};

use super::process::Identity;
use super::{ClassError, ClassFile, IDLE_MS, MEMBERS_MAX, Table, Told};
use crate::configuration::{ClassName, FilePath, Ratio};

/// A member gets room beyond its bytes in steps of at most this part of a budget.
const STEP_PART: u64 = 16;
/// Or of this many bytes, if that is more.
const STEP_BYTES_MIN: u64 = 64 << 10;

/// A process and its class: a member, or one that waits for the class.
#[derive(Debug)]
pub struct Membership {
    path: FilePath,
    name: ClassName,
    identity: Identity,
    /// The file that was opened last. As long as it is in its place, the process looks into it for the class: a program
    /// that closes all descriptors must not meet the one of a file that is opened again and again.
    file: Option<ClassFile>,
    seat: Option<Seat>,
    /// Bytes that a forked child shares with its parent, while that lives.
    inherited: Option<Inherited>,
    dead: Dead,
}

/// A slot for a member of a class.
#[derive(Debug, Clone, Copy)]
struct Seat {
    slot: usize,
    class: usize,
    generation: u32,
}

/// The slots of members that were dead when this process looked last. To look takes a file of `/proc` per idle member.
#[derive(Debug)]
struct Dead {
    slots: [bool; MEMBERS_MAX],
    /// When the process may look again.
    look_ms: u64,
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
    /// A process that waits for the class `name` of the file at `path`.
    pub fn new(path: FilePath, name: ClassName) -> Membership {
        let identity = Identity::own();
        Membership { path, name, identity, file: None, seat: None, inherited: None, dead: Dead::NONE }
    }

    /// Takes a slot in the class, at first, or after [`Membership::tick`] has failed. A member keeps its slot while its
    /// class is deleted, so nobody gives back a slot that another process has taken meanwhile.
    ///
    /// # Errors
    ///
    /// The file cannot be used, has no such class, or has no free slot.
    pub fn join(&mut self) -> Result<(), ClassError> {
        let file = match self.file.take().filter(ClassFile::is_in_place) {
            Some(file) => file,
            None => {
                self.seat = None;
                ClassFile::open(&self.path)?
            }
        };
        let file = self.file.insert(file);
        let (class, generation) = file.read()?.find(&self.name).ok_or(ClassError::NoClass)?;
        let kept = self.seat.map(|seat| seat.slot);
        self.seat = Some(Seat::take(file, self.identity, kept, class, generation)?);
        self.dead = Dead::NONE;
        Ok(())
    }

    /// Tells how many bytes the member has in each medium, and asks for more room.
    ///
    /// # Errors
    ///
    /// The class or the file was deleted, or the file was damaged. The caller may try [`Membership::join`] then.
    pub fn tick(&mut self, live_bytes: [u64; 2], now_ms: u64) -> Result<Share, ClassError> {
        let (Some(file), Some(seat)) = (&self.file, self.seat) else { return Err(ClassError::NoClass) };
        let table = file.read()?;
        let (class, member) = (&table.classes[seat.class], &table.members[seat.slot]);
        if class.generation.load(Relaxed) != seat.generation {
            return Err(ClassError::NoClass);
        }
        if member.owner.load(Relaxed) != self.identity.to_word() {
            return Err(ClassError::Damaged);
        }
        self.dead.look(table, seat.word(), now_ms);
        let ratio = Ratio::of_word(class.ratio.load(Relaxed));
        let limits = [0, 1].map(|medium: usize| class.limit_bytes[medium].load(Relaxed));
        let inherited = [0, 1].map(|medium| self.inherited_bytes(medium));
        let own = [0, 1].map(|medium: usize| live_bytes[medium].saturating_sub(inherited[medium]));
        let others = |table, medium| self.others(table, seat, medium, now_ms);
        let mut steps = [0, 1].map(|medium: usize| step(limits[medium], own[medium], others(table, medium)));
        loop {
            member.told.store(own, steps, now_ms);
            file.write(&member.told)?;
            if steps == [0; 2] {
                break;
            }
            fence(SeqCst);
            let table = file.read()?;
            // Another member may have added up the grants before it could see this one, but then this one sees that.
            let exceeds = |medium: usize| {
                let (others, _) = others(table, medium);
                (own[medium] + steps[medium]).saturating_add(others) > limits[medium]
            };
            // A member without any room may have to refuse its program, so it asks for less.
            let asked = [0, 1].map(|medium| if exceeds(medium) { steps[medium] / 2 } else { steps[medium] });
            if replace(&mut steps, asked) == asked {
                break;
            }
        }
        let limit = |medium: usize| match limits[medium] {
            u64::MAX => u64::MAX,
            _ => (own[medium] + steps[medium]).saturating_add(inherited[medium]),
        };
        Ok(Share { ratio, limit_bytes: [0, 1].map(limit) })
    }

    /// The bytes that other members hold, and the number of these members. The dead hold none.
    fn others(&self, table: &Table, seat: Seat, medium: usize, now_ms: u64) -> (u64, u64) {
        let (mut bytes, mut count) = (0u64, 0);
        for (slot, member) in table.members.iter().enumerate() {
            let is_of_class = member.class.load(Relaxed) == seat.word();
            if slot == seat.slot || member.owner.load(Relaxed) == 0 || !is_of_class {
                continue;
            }
            let is_idle = member.told.is_idle(now_ms);
            if is_idle && self.dead.slots[slot] {
                continue;
            }
            let held = if is_idle { &member.told.live_bytes } else { &member.told.granted_bytes };
            bytes = bytes.saturating_add(held[medium].load(Relaxed));
            count += 1;
        }
        (bytes, count)
    }

    fn inherited_bytes(&self, medium: usize) -> u64 {
        let inherited = self.inherited.as_ref().filter(|inherited| inherited.parent == getppid());
        inherited.map_or(0, |inherited| inherited.live_bytes[medium])
    }

    /// Forgets the file, in a child that has this value from a thread of its parent. That thread may have written a
    /// part of the file's addresses. [`Membership::fork`] opens the file again.
    pub fn forget_file(&mut self) {
        forget(self.file.take());
    }

    /// Has a forked child join, whether its parent is a member or not. The bytes of the time before the fork count for
    /// the parent while it lives.
    ///
    /// # Errors
    ///
    /// As for [`Membership::join`]. The child's next [`Membership::tick`] fails then.
    pub fn fork(&mut self, live_bytes: [u64; 2]) -> Result<(), ClassError> {
        // The parent that joined, and not one that has adopted the child meanwhile.
        let parent = Pid::from_raw(self.identity.pid as i32);
        self.inherited = Some(Inherited { parent, live_bytes });
        self.identity = Identity::own();
        // The slot is the parent's.
        self.seat = None;
        self.join()
    }
}

impl Seat {
    /// Takes the slot `kept` if it is still that of this process, or a free slot, or that of a dead process.
    fn take(
        file: &ClassFile,
        identity: Identity,
        kept: Option<usize>,
        class: usize,
        generation: u32,
    ) -> Result<Seat, ClassError> {
        let table = file.read()?;
        let owner = |slot: usize| table.members[slot].owner.load(Relaxed);
        let take = |slot: usize| {
            let shared = &file.shared().members[slot].owner;
            shared.compare_exchange(owner(slot), identity.to_word(), AcqRel, Relaxed).is_ok()
        };
        let is_dead = |slot: usize| Identity::of_word(owner(slot)).is_some_and(|owner| !owner.is_alive());
        let kept = kept.filter(|&slot| owner(slot) == identity.to_word());
        let free = || (0..MEMBERS_MAX).find(|&slot| owner(slot) == 0 && take(slot));
        let dead = || (0..MEMBERS_MAX).find(|&slot| is_dead(slot) && take(slot));
        let slot = kept.or_else(free).or_else(dead).ok_or(ClassError::Full)?;
        let (seat, member) = (Seat { slot, class, generation }, &table.members[slot]);
        member.told.store([0; 2], [0; 2], 0);
        file.write(&member.told)?;
        // The class comes last: with it, the grants count.
        member.class.store(seat.word(), Relaxed);
        file.write(&member.class)?;
        Ok(seat)
    }

    /// [`super::Member::class`].
    fn word(self) -> u64 {
        u64::from(self.generation) << 32 | self.class as u64
    }
}

impl Dead {
    const NONE: Dead = Dead { slots: [false; MEMBERS_MAX], look_ms: 0 };

    /// Looks at the idle members of a class, once in a while.
    fn look(&mut self, table: &Table, class: u64, now_ms: u64) {
        if now_ms < self.look_ms {
            return;
        }
        self.look_ms = now_ms + IDLE_MS;
        for (is_dead, member) in self.slots.iter_mut().zip(&table.members) {
            let is_idle = member.class.load(Relaxed) == class && member.told.is_idle(now_ms);
            let owner = Identity::of_word(member.owner.load(Relaxed)).filter(|_| is_idle);
            *is_dead = owner.is_some_and(|owner| !owner.is_alive());
        }
    }
}

impl Told {
    fn is_idle(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.ticked_ms.load(Relaxed)) > IDLE_MS
    }

    /// A member that has `own` bytes in each medium, and room for `steps` more.
    fn store(&self, own: [u64; 2], steps: [u64; 2], now_ms: u64) {
        for (medium, (own, step)) in own.into_iter().zip(steps).enumerate() {
            self.live_bytes[medium].store(own, Relaxed);
            self.granted_bytes[medium].store(own + step, Relaxed);
        }
        self.ticked_ms.store(now_ms, Relaxed);
    }
}

/// The room that a member with `own` bytes asks for beyond them, as far as the others leave it: 0 without a limit.
fn step(limit: u64, own: u64, (others, members): (u64, u64)) -> u64 {
    if limit == u64::MAX {
        return 0;
    }
    let room = limit.saturating_sub(own).saturating_sub(others);
    (room / (members + 1)).min((limit / STEP_PART).max(STEP_BYTES_MIN))
}
