//! A queueing network with one class of operations: stations that operations visit, and how long they wait there.
//!
//! A station has a *demand*: the seconds of service that an operation needs there, all its visits together. The speed
//! of a station depends on how many operations are there:
//!
//! - a delay has a server for each of them;
//! - `c` servers serve at most `c` at a time;
//! - cores are servers that slow each other down. With `p` of them busy each operation takes `1 + s (p - 1) + k p (p -
//!   1)` times as long, by the Universal Scalability Law (Gunther, "A General Theory of Computational Scalability Based
//!   on Rational Functions", arXiv 0808.1431). `s` is the contention and `k` the coherency. Crowding adds a part `c w`,
//!   where `w` is the share of the operations at the cores that wait for one.
//!
//! A *closed* network has a fixed number of operations under way: one for each thread. Its solution is exact for
//! exponential service, and for any service with processor sharing (Baskett, Chandy, Muntz and Palacios, 1975). The
//! steps are those of the convolution algorithm (Buzen, 1973). Mean-value analysis (Reiser and Lavenberg, 1980) gives
//! the same figures. For stations of several servers it subtracts probabilities and loses its digits; convolution only
//! adds positive numbers.
//!
//! An *open* network gets operations at a rate, and each of its stations is solved by itself (Jackson, 1957).

/// How fast a station serves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Speed {
    /// Everybody at once.
    Delay,
    /// So many at a time. A part of a server does a part of the work.
    Servers(f64),
    /// So many at a time, which slow each other down.
    Cores {
        /// How many there are.
        cores: f64,
        /// The part by which each further busy core slows an operation down.
        contention: f64,
        /// The same for each pair of busy cores.
        coherency: f64,
        /// The part by which an operation is slowed down if nearly all others wait for a core.
        crowding: f64,
    },
}

/// The share of so many operations that wait while so many cores are busy. One alone waits for no other.
pub(super) fn waiting(present: f64, busy: f64) -> f64 {
    (1.0 - busy.max(1.0) / present).max(0.0)
}

impl Speed {
    /// Operations in service when `present` are there.
    fn busy(&self, present: f64) -> f64 {
        match *self {
            Speed::Delay => present,
            Speed::Servers(servers) => present.min(servers),
            Speed::Cores { cores, .. } => present.min(cores),
        }
    }

    /// Work done, where 1 is that of one operation alone.
    fn at(&self, present: f64) -> f64 {
        let busy = self.busy(present);
        let crowded = match *self {
            Speed::Cores { crowding, .. } => crowding * waiting(present, busy),
            _ => 0.0,
        };
        busy / (self.slowdown(busy) + crowded)
    }

    /// How much longer an operation takes with so many busy.
    fn slowdown(&self, busy: f64) -> f64 {
        let Speed::Cores { contention, coherency, .. } = *self else { return 1.0 };
        let others = (busy - 1.0).max(0.0);
        1.0 + contention * others + coherency * busy * others
    }

    /// The number of servers; none for a delay.
    fn servers(&self) -> Option<f64> {
        match *self {
            Speed::Delay => None,
            Speed::Servers(servers) => Some(servers),
            Speed::Cores { cores, .. } => Some(cores),
        }
    }
}

/// A station.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Station {
    /// Its name in results.
    pub name: String,
    /// Seconds of service for each operation.
    pub demand_sec: f64,
    /// How fast it serves.
    pub speed: Speed,
}

/// What a network does.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// Operations per second.
    pub throughput: f64,
    /// Mean seconds of an operation, from its begin to its end.
    pub latency_sec: f64,
    /// What happens at each station.
    pub stations: Vec<Load>,
}

/// What happens at a station.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Mean number of busy servers.
    pub busy: f64,
    /// Mean seconds that an operation is there, waiting included.
    pub residence_sec: f64,
    /// The part of the servers that are busy; none for a delay.
    pub utilisation: Option<f64>,
}

impl Load {
    fn new(station: &Station, busy: f64, present: f64, throughput: f64) -> Self {
        Load {
            busy,
            residence_sec: present / throughput,
            utilisation: station.speed.servers().map(|servers| busy / servers),
        }
    }
}

impl Solution {
    /// The place of the station whose servers are busiest.
    pub fn bottleneck(&self) -> Option<usize> {
        let busiest =
            self.stations.iter().enumerate().filter_map(|(place, load)| Some((place, load.utilisation?)));
        busiest.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(place, _)| place)
    }
}

/// The network with `customers` operations under way, at least one. Time is quadratic in them.
pub(super) fn closed(stations: &[Station], customers: usize) -> Solution {
    let factors: Vec<Vec<f64>> = stations.iter().map(|station| weights(station, customers)).collect();
    let all = convolved(&factors, None, customers);
    let throughput = (all[customers - 1] - all[customers]).exp();
    let load = |(place, station): (usize, &Station)| {
        let others = convolved(&factors, Some(place), customers);
        let share =
            |present: usize| (factors[place][present] + others[customers - present] - all[customers]).exp();
        let mean = |of: &dyn Fn(f64) -> f64| (1..=customers).map(|n| of(n as f64) * share(n)).sum::<f64>();
        Load::new(station, mean(&|present| station.speed.busy(present)), mean(&|present| present), throughput)
    };
    Solution {
        throughput,
        latency_sec: customers as f64 / throughput,
        stations: stations.iter().enumerate().map(load).collect(),
    }
}

/// The throughput of [`closed`]. For two stations the time is linear in the customers.
pub(super) fn closed_throughput(stations: &[Station], customers: usize) -> f64 {
    let factors: Vec<Vec<f64>> = stations.iter().map(|station| weights(station, customers)).collect();
    let (last, others) = factors.split_last().expect("a network has a station");
    let sum = match others {
        [only] => only.clone(),
        _ => convolved(others, None, customers),
    };
    let all = |n: usize| log_sum((0..=n).map(|here| last[here] + sum[n - here]));
    (all(customers - 1) - all(customers)).exp()
}

/// The logarithm of the weight of 0, 1, ... operations at a station.
fn weights(station: &Station, customers: usize) -> Vec<f64> {
    let demand = station.demand_sec.ln();
    let mut weight = 0.0;
    let more = (1..=customers).map(|present| {
        weight += demand - station.speed.at(present as f64).ln();
        weight
    });
    std::iter::once(0.0).chain(more).collect()
}

/// The logarithms of the normalising constants of a network of all stations, less one.
fn convolved(factors: &[Vec<f64>], without: Option<usize>, customers: usize) -> Vec<f64> {
    let mut sum = vec![f64::NEG_INFINITY; customers + 1];
    sum[0] = 0.0;
    for (_, factor) in factors.iter().enumerate().filter(|(place, _)| Some(*place) != without) {
        let added = |n: usize| log_sum((0..=n).map(|here| factor[here] + sum[n - here]));
        sum = (0..=customers).map(added).collect();
    }
    sum
}

/// The logarithm of a sum, from the logarithms of its parts.
fn log_sum(parts: impl Iterator<Item = f64> + Clone) -> f64 {
    let most = parts.clone().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        return most;
    }
    most + parts.map(|part| (part - most).exp()).sum::<f64>().ln()
}

/// The network with `rate` operations per second. `Err` has the place of the first station that cannot keep up.
pub(super) fn open(stations: &[Station], rate: f64) -> Result<Solution, usize> {
    let loads = stations.iter().enumerate().map(|(place, station)| load_at(station, rate).ok_or(place));
    let stations: Vec<Load> = loads.collect::<Result<_, _>>()?;
    let latency_sec = stations.iter().map(|load| load.residence_sec).sum();
    Ok(Solution { throughput: rate, latency_sec, stations })
}

/// A station that gets operations at a rate; nothing if they are too many. For servers without slowdown that is
/// M/M/c.
fn load_at(station: &Station, rate: f64) -> Option<Load> {
    let offered = rate * station.demand_sec;
    let Some(servers) = station.speed.servers() else {
        return Some(Load::new(station, offered, offered, rate));
    };
    // From this number on the speed is that of all servers, and the probabilities fall by the same part each.
    let full = servers.ceil().max(1.0);
    let part = offered / station.speed.at(full);
    if part >= 1.0 {
        return None;
    }
    let step = |weight: &mut f64, n: usize| {
        *weight += (offered / station.speed.at(n as f64)).ln();
        Some(*weight)
    };
    let logarithms: Vec<f64> =
        std::iter::once(0.0).chain((1..=full as usize).scan(0.0, |weight, n| step(weight, n))).collect();
    let most = logarithms.iter().copied().fold(0.0, f64::max);
    let (mut sum, mut present, mut busy) = (0.0, 0.0, 0.0);
    for (n, logarithm) in logarithms.iter().enumerate() {
        let (here, weight) = (n as f64, (logarithm - most).exp());
        // The last stands for all from there on.
        let (weight, here) = match here < full {
            true => (weight, here),
            false => (weight / (1.0 - part), full + part / (1.0 - part)),
        };
        sum += weight;
        present += here * weight;
        busy += station.speed.busy(here) * weight;
    }
    Some(Load::new(station, busy / sum, present / sum, rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(demand_sec: f64, speed: Speed) -> Station {
        Station { name: "x".into(), demand_sec, speed }
    }

    fn close(one: f64, other: f64) {
        assert!((one / other - 1.0).abs() < 1e-9, "{one} is not {other}");
    }

    /// P(wait) of M/M/c by Erlang's formula C, from his recursion for B.
    fn erlang_c(servers: usize, offered: f64) -> f64 {
        let b = (1..=servers).fold(1.0, |b, n| offered * b / (n as f64 + offered * b));
        b / (1.0 - offered / servers as f64 * (1.0 - b))
    }

    #[test]
    fn an_open_station_is_m_m_1_and_m_m_c() {
        let solved = open(&[station(0.25, Speed::Servers(1.0))], 3.0).unwrap();
        close(solved.latency_sec, 0.25 / (1.0 - 0.75));
        close(solved.stations[0].utilisation.unwrap(), 0.75);
        for (servers, rate) in [(2, 7.0), (5, 19.0), (64, 250.0)] {
            let solved = open(&[station(0.25, Speed::Servers(servers as f64))], rate).unwrap();
            let wait = erlang_c(servers, rate * 0.25) / (servers as f64 / 0.25 - rate);
            close(solved.latency_sec, 0.25 + wait);
            close(solved.stations[0].busy, rate * 0.25);
        }
        assert_eq!(open(&[station(0.1, Speed::Delay), station(0.25, Speed::Servers(2.0))], 8.0), Err(1));
    }

    /// Machines that fail after `think` seconds each, and one repairman: Palm's formula of 1947.
    #[test]
    fn a_closed_network_is_the_machine_repairman() {
        let (think, repair) = (0.9, 0.2);
        let stations = [station(think, Speed::Delay), station(repair, Speed::Servers(1.0))];
        for machines in [1, 2, 7, 40] {
            // Erlang's B is the probability that the repairman is idle.
            let idle = (1..=machines).fold(1.0, |b, n| {
                let offered = think / repair;
                offered * b / (n as f64 + offered * b)
            });
            let solved = closed(&stations, machines);
            close(solved.throughput, (1.0 - idle) / repair);
            close(solved.stations[1].utilisation.unwrap(), 1.0 - idle);
            close(solved.stations.iter().map(|load| load.residence_sec).sum(), solved.latency_sec);
        }
    }

    /// Mean-value analysis by the book, which is exact and stable for single servers.
    #[test]
    fn a_closed_network_agrees_with_mean_value_analysis() {
        let demands = [0.3, 0.11, 0.05];
        let stations: Vec<Station> = demands.map(|demand| station(demand, Speed::Servers(1.0))).into();
        let mut queues = [0.0; 3];
        for customers in 1..=60 {
            let residences: Vec<f64> =
                demands.iter().zip(queues).map(|(demand, queue)| demand * (1.0 + queue)).collect();
            let throughput = f64::from(customers) / residences.iter().sum::<f64>();
            let solved = closed(&stations, customers as usize);
            close(solved.throughput, throughput);
            for (place, residence) in residences.iter().enumerate() {
                queues[place] = throughput * residence;
                close(solved.stations[place].residence_sec, *residence);
            }
            assert_eq!(solved.bottleneck(), Some(0));
        }
    }

    #[test]
    fn cores_without_other_stations_follow_the_scalability_law() {
        let speed = |cores| Speed::Cores { cores, contention: 0.03, coherency: 0.001, crowding: 0.0 };
        let cores = |cores| [station(1e-6, speed(cores))];
        for threads in [1, 2, 8, 32, 200] {
            let busy = f64::from(threads).min(32.0);
            let law = busy / (1.0 + 0.03 * (busy - 1.0) + 0.001 * busy * (busy - 1.0));
            close(closed(&cores(32.0), threads as usize).throughput, law * 1e6);
            close(closed_throughput(&cores(32.0), threads as usize), law * 1e6);
        }
        close(closed(&cores(2.0), 32).stations[0].busy, 2.0);
    }

    /// Threads that have their core do not crowd each other, and of many threads nearly all wait.
    #[test]
    fn cores_are_slower_while_threads_wait_for_them() {
        let speed = |cores| Speed::Cores { cores, contention: 0.0, coherency: 0.0, crowding: 0.4 };
        let throughput = |cores, threads| closed_throughput(&[station(1e-6, speed(cores))], threads);
        close(throughput(2.0, 2), 2e6);
        close(throughput(2.0, 8), 2e6 / 1.3);
        close(throughput(2.0, 2_000), 2e6 / (1.0 + 0.4 * 0.999));
        close(throughput(0.5, 1), 0.5e6);
    }

    #[test]
    fn thousands_of_customers_do_not_overflow() {
        let stations = [station(5.0, Speed::Delay), station(1.0, Speed::Servers(700.0))];
        let solved = closed(&stations, 3_000);
        assert!((0.98..=1.0).contains(&(solved.throughput / 500.0)), "{}", solved.throughput);
    }
}
