//! The thread that reads a trace and hands each request to the thread that owns its key.
//!
//! Requests go in batches through queues of bounded length, so that a trace of any length takes little memory. One key
//! has one owner, so its requests are made in the order of the trace.

use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};

use crate::run::replay::ledger::hash;
use crate::workload::trace::{Request, TraceFile};

/// Requests of a batch, and bytes of their keys, at which it is handed over.
const BATCH_REQUESTS: usize = 256;
const BATCH_KEY_BYTES: usize = 1 << 14;
/// Batches that wait for one worker.
const QUEUED: usize = 4;
/// Requests of one timestamp that are spread over its time; more are spread part by part. Nobody knows beforehand how
/// many parts follow, so a part gets half of the time that is left, and the last one gets all of it.
const HELD_REQUESTS: usize = 1 << 20;
const HELD_KEY_BYTES: usize = 64 << 20;

/// A request in a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queued {
    /// Nanoseconds from the begin of the replay; 0 for a closed loop.
    pub(crate) arrival_ns: u64,
    pub(crate) hash: u64,
    key_end: u32,
    pub(crate) value_bytes: u32,
    pub(crate) operation: u8,
    pub(crate) has_lifetime: bool,
}

/// Requests with their keys.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    requests: Vec<Queued>,
    keys: Vec<u8>,
}

impl Batch {
    fn with_room() -> Self {
        Batch { requests: Vec::with_capacity(BATCH_REQUESTS), keys: Vec::with_capacity(2 * BATCH_KEY_BYTES) }
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.keys.clear();
    }

    fn push(&mut self, request: &Queued, key: &[u8]) {
        self.keys.extend_from_slice(key);
        self.requests.push(Queued { key_end: self.keys.len() as u32, ..*request });
    }

    fn is_full(&self) -> bool {
        self.requests.len() >= BATCH_REQUESTS || self.keys.len() >= BATCH_KEY_BYTES
    }

    /// The requests, each with its key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Queued, &[u8])> {
        let starts = std::iter::once(0).chain(self.requests.iter().map(|request| request.key_end as usize));
        starts
            .zip(&self.requests)
            .map(|(start, request)| (request, &self.keys[start..request.key_end as usize]))
    }
}

/// The end of the queues of one worker.
pub(crate) struct Inbox {
    pub(crate) batches: Receiver<Batch>,
    /// Takes back what was worked off.
    pub(crate) empty: Sender<Batch>,
}

/// What was read of a trace when the feeding ended.
#[derive(Debug, Default)]
pub(crate) struct Fed {
    pub(crate) requests: u64,
    /// Requests whose key has another length than the trace says.
    pub(crate) altered_keys: u64,
    /// Why the trace ended before its end.
    pub(crate) fault: Option<String>,
}

/// Parts requests among workers.
pub(crate) struct Feeder {
    boxes: Vec<SyncSender<Batch>>,
    empty: Receiver<Batch>,
    /// For each worker, what is not handed over yet.
    open: Vec<Batch>,
    /// How many times faster than the trace requests arrive; `None` for a closed loop.
    speed: Option<f64>,
    held: Batch,
    /// Nanoseconds of the held requests' timestamp that parts before them have.
    spent_ns: f64,
}

impl Feeder {
    /// Queues for so many workers, whose memory is allocated here.
    pub(crate) fn new(workers: usize, speed: Option<f64>) -> (Self, Vec<Inbox>) {
        let (give_back, empty) = channel();
        for _ in 0..workers * (QUEUED + 1) {
            let _ = give_back.send(Batch::with_room());
        }
        let (boxes, inboxes) = (0..workers)
            .map(|_| {
                let (sender, batches) = sync_channel(QUEUED);
                (sender, Inbox { batches, empty: give_back.clone() })
            })
            .unzip();
        let open = (0..workers).map(|_| Batch::with_room()).collect();
        (Feeder { boxes, empty, open, speed, held: Batch::default(), spent_ns: 0.0 }, inboxes)
    }

    /// Reads a trace up to its end, to a fault, to so many requests, or until the workers are gone.
    /// The queues end then.
    pub(crate) fn feed(&mut self, trace: &mut TraceFile, requests_max: u64) -> Fed {
        let fed = self.read(trace, requests_max);
        self.boxes.clear();
        self.held = Batch::default();
        fed
    }

    fn read(&mut self, trace: &mut TraceFile, requests_max: u64) -> Fed {
        let tick_ns = trace.layout().tick_ns();
        let (mut fed, mut first_ns, mut now_ns) = (Fed::default(), None, 0);
        while fed.requests < requests_max {
            let request = match trace.read() {
                Ok(Some(request)) => request,
                Ok(None) => break,
                Err(told) => {
                    fed.fault = Some(told);
                    break;
                }
            };
            fed.requests += 1;
            fed.altered_keys += u64::from(request.is_key_altered);
            let since_ns = request.time_ns.saturating_sub(*first_ns.get_or_insert(request.time_ns));
            let is_later = since_ns > now_ns;
            if (is_later || self.holds_much()) && self.release(now_ns, tick_ns, is_later).is_err() {
                return fed;
            }
            now_ns = now_ns.max(since_ns);
            if self.take(&request).is_err() {
                return fed;
            }
        }
        let _ = self.release(now_ns, tick_ns, true).and_then(|()| self.hand_over_rest());
        fed
    }

    fn holds_much(&self) -> bool {
        self.held.requests.len() >= HELD_REQUESTS || self.held.keys.len() >= HELD_KEY_BYTES
    }

    /// Hands a request over in a closed loop, and holds it in an open one until its time is known.
    fn take(&mut self, request: &Request<'_>) -> Result<(), Gone> {
        let queued = Queued {
            arrival_ns: 0,
            hash: hash(request.key),
            key_end: 0,
            value_bytes: request.value_bytes,
            operation: request.operation as u8,
            has_lifetime: request.lifetime_sec > 0,
        };
        match self.speed {
            None => self.queue(&queued, request.key),
            Some(_) => {
                self.held.push(&queued, request.key);
                Ok(())
            }
        }
    }

    /// Hands over the held requests of a timestamp, evenly over the time that it stands for, or over their part of that
    /// time. The next requests have another timestamp if this part is the last one.
    fn release(&mut self, time_ns: u64, tick_ns: u64, is_last: bool) -> Result<(), Gone> {
        let Some(speed) = self.speed else { return Ok(()) };
        let mut held = std::mem::take(&mut self.held);
        let left_ns = tick_ns as f64 - self.spent_ns;
        let part_ns = if is_last { left_ns } else { left_ns / 2.0 };
        let (start_ns, each_ns) =
            (time_ns as f64 + self.spent_ns, part_ns / held.requests.len().max(1) as f64);
        for (at, (request, key)) in held.iter().enumerate() {
            let arrival_ns = ((start_ns + at as f64 * each_ns) / speed) as u64;
            self.queue(&Queued { arrival_ns, ..*request }, key)?;
        }
        held.clear();
        self.held = held;
        self.spent_ns = if is_last { 0.0 } else { self.spent_ns + part_ns };
        Ok(())
    }

    fn queue(&mut self, request: &Queued, key: &[u8]) -> Result<(), Gone> {
        let owner = (request.hash % self.boxes.len() as u64) as usize;
        self.open[owner].push(request, key);
        if self.open[owner].is_full() { self.hand_over(owner) } else { Ok(()) }
    }

    /// Hands a batch to its worker. Before this thread waits for one worker, the others get what is theirs.
    fn hand_over(&mut self, owner: usize) -> Result<(), Gone> {
        let batch = self.closed(owner);
        match self.boxes[owner].try_send(batch) {
            Ok(()) => Ok(()),
            Err(TrySendError::Disconnected(_)) => Err(Gone),
            Err(TrySendError::Full(batch)) => {
                for other in 0..self.boxes.len() {
                    if !self.open[other].requests.is_empty() {
                        let part = self.closed(other);
                        if let Err(TrySendError::Full(part)) = self.boxes[other].try_send(part) {
                            self.open[other] = part;
                        }
                    }
                }
                self.boxes[owner].send(batch).map_err(|_| Gone)
            }
        }
    }

    fn hand_over_rest(&mut self) -> Result<(), Gone> {
        (0..self.boxes.len()).try_for_each(|owner| {
            let batch = self.closed(owner);
            self.boxes[owner].send(batch).map_err(|_| Gone)
        })
    }

    /// The open batch of a worker, for which an empty one takes its place.
    fn closed(&mut self, owner: usize) -> Batch {
        let mut empty = self.empty.try_recv().unwrap_or_else(|_| Batch::with_room());
        empty.clear();
        std::mem::replace(&mut self.open[owner], empty)
    }
}

/// Workers have ended.
struct Gone;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn fed(
        text: &str,
        workers: usize,
        speed: Option<f64>,
        requests_max: u64,
    ) -> (Fed, Vec<Vec<(u64, String)>>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        std::fs::write(&path, text).unwrap();
        let mut trace = TraceFile::open(Path::new(&path), 1_000).unwrap();
        let (mut feeder, inboxes) = Feeder::new(workers, speed);
        std::thread::scope(|scope| {
            let read = |inbox: Inbox| {
                let mut all = Vec::new();
                for batch in inbox.batches.iter() {
                    let key = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
                    all.extend(batch.iter().map(|(request, bytes)| (request.arrival_ns, key(bytes))));
                    let _ = inbox.empty.send(batch);
                }
                all
            };
            let readers: Vec<_> = inboxes.into_iter().map(|inbox| scope.spawn(move || read(inbox))).collect();
            let fed = feeder.feed(&mut trace, requests_max);
            (fed, readers.into_iter().map(|reader| reader.join().unwrap()).collect())
        })
    }

    #[test]
    fn each_key_goes_to_one_worker_in_its_order() {
        let lines: String = (0..30_000).map(|at| format!("{at} get k{}\n", at % 97)).collect();
        let (fed, parts) = fed(&format!("ziptier-trace 1\n{lines}"), 3, None, u64::MAX);
        assert_eq!((fed.requests, fed.fault), (30_000, None));
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 30_000);
        for number in 0..97 {
            let key = format!("k{number}");
            let owners = parts.iter().filter(|part| part.iter().any(|(_, one)| *one == key)).count();
            assert_eq!(owners, 1, "{key}");
        }
        assert!(parts.iter().all(|part| part.len() > 5_000));
    }

    #[test]
    fn requests_of_one_second_are_spread_over_it() {
        let line = |second: u64, key: &str| format!("{second},{key},1,0,1,get,0\n");
        let text = [line(100, "a"), line(100, "b"), line(100, "c"), line(100, "d"), line(103, "e")].concat();
        let arrivals = |speed| fed(&text, 1, speed, u64::MAX).1.remove(0);
        let at = |speed: u64| {
            [0, 250, 500, 750, 3_000].map(|ms| ms * 1_000_000 / speed).into_iter().zip("abcde".chars())
        };
        for speed in [1, 2] {
            let expected: Vec<_> = at(speed).map(|(ns, key)| (ns, key.to_string())).collect();
            assert_eq!(arrivals(Some(speed as f64)), expected);
        }
        assert!(arrivals(None).iter().all(|(ns, _)| *ns == 0));
        let own = "ziptier-trace 1\n5 get a\n5.000000002 get b\n5 get c\n7 get d\n";
        let ns: Vec<u64> = fed(own, 1, Some(1.0), u64::MAX).1[0].iter().map(|(ns, _)| *ns).collect();
        assert_eq!(ns, [0, 2, 2, 2_000_000_000]);
    }

    /// Otherwise a request would have come before those that stand before it, and be late when it begins.
    #[test]
    fn more_requests_of_one_second_than_are_held_come_in_their_order_within_it() {
        let text = "100,a,1,0,1,get,0\n".repeat(HELD_REQUESTS + 4) + "101,b,1,0,1,get,0\n";
        let ns: Vec<u64> = fed(&text, 1, Some(1.0), u64::MAX).1[0].iter().map(|(ns, _)| *ns).collect();
        assert!(ns.is_sorted());
        let [.., first, second, third, fourth, later] = ns[..] else { panic!("{} requests", ns.len()) };
        assert_eq!([first, second, third, fourth].map(|ns| ns / 1_000_000), [500, 625, 750, 875]);
        assert_eq!((ns.len(), later), (HELD_REQUESTS + 5, 1_000_000_000));
    }

    #[test]
    fn feeding_ends_at_a_fault_and_at_a_count() {
        let text = "ziptier-trace 1\n0 get a\n0 get b\n0 git c\n";
        let (all, parts) = fed(text, 2, None, u64::MAX);
        assert_eq!((all.requests, parts.iter().map(Vec::len).sum()), (2, 2));
        assert!(all.fault.unwrap().starts_with("line 4, field 2 (operation): `git`"));
        let (some, _) = fed(text, 2, None, 1);
        assert_eq!((some.requests, some.fault), (1, None));
    }
}
