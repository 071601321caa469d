//! Values that look real without a file: session objects, log lines, time-series points, Latin text, and bytes of a set
//! compressibility. The same seed gives the same bytes on every machine.

use std::io::Write;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::error::Error;

/// The kind of generated values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Generator {
    /// JSON session objects, one per line.
    Json,
    /// Lines of an HTTP service's log.
    Log,
    /// Points of a monitoring system in line protocol.
    TimeSeries,
    /// Sentences of Latin words, as tools for databases fill their text columns.
    Lorem,
    /// Random bytes of which the given share are zeros, in one run per value.
    Random {
        /// Share of zeros, 0 to 1.
        compressible: f64,
    },
}

/// Room for the last record, which begins before the wanted length and may end behind it.
pub(crate) const GENERATED_ROOM: usize = 1024;

impl Generator {
    /// The generator with this name; nothing if it is no generator's name.
    pub fn parse(name: &str) -> Result<Option<Self>, Error> {
        Ok(Some(match name {
            "json" => Generator::Json,
            "log" => Generator::Log,
            "timeseries" => Generator::TimeSeries,
            "lorem" => Generator::Lorem,
            _ => match name.strip_prefix("random:") {
                None => return Ok(None),
                Some(share) => match share.parse() {
                    Ok(compressible) if (0.0..=1.0).contains(&compressible) => {
                        Generator::Random { compressible }
                    }
                    _ => {
                        return Err(Error::invalid(
                            "share of compressible bytes",
                            share,
                            "give a number from 0 to 1, such as random:0.5",
                        ));
                    }
                },
            },
        }))
    }

    /// About `len` bytes (at least one record); `period` is the bytes of a value, for [`Generator::Random`].
    pub fn bytes(self, len: usize, period: usize, seed: u64) -> Vec<u8> {
        self.bytes_into(Vec::with_capacity(len + GENERATED_ROOM), len, period, seed)
    }

    /// The same in an empty vector, which has room for [`GENERATED_ROOM`] bytes more.
    pub(crate) fn bytes_into(self, out: Vec<u8>, len: usize, period: usize, seed: u64) -> Vec<u8> {
        let mut source = Source { random: SmallRng::seed_from_u64(seed), out };
        let mut clock_ms = 1_700_000_000_000u64;
        while source.out.len() < len {
            match self {
                Generator::Json => source.session(&mut clock_ms),
                Generator::Log => source.log_line(&mut clock_ms),
                Generator::TimeSeries => source.points(&mut clock_ms),
                Generator::Lorem => source.sentence(),
                Generator::Random { compressible } => source.part_random(period.max(1), compressible),
            }
        }
        source.out
    }
}

struct Source {
    random: SmallRng,
    out: Vec<u8>,
}

const FIRST: &[&str] = &[
    "Ada", "Ben", "Chloe", "Dario", "Elif", "Femi", "Grace", "Hugo", "Ines", "Jonas", "Kaori", "Liam",
    "Mina", "Noor", "Olga", "Pavel", "Quinn", "Rosa", "Sven", "Tariq", "Uma", "Victor", "Wen", "Ximena",
    "Yusuf", "Zoe",
];
const LAST: &[&str] = &[
    "Almeida", "Brandt", "Castillo", "Dubois", "Eriksen", "Fischer", "Garcia", "Hansen", "Ivanova", "Jansen",
    "Kowalski", "Larsson", "Moreau", "Nakamura", "Okafor", "Petrov", "Rossi", "Schmidt", "Tanaka", "Umar",
];
const AGENTS: &[&str] = &[
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/124.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148",
    "Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0",
    "okhttp/4.12.0",
];
const PATHS: &[&str] = &[
    "/cart",
    "/checkout",
    "/search",
    "/account",
    "/orders",
    "/api/v2/items",
    "/api/v2/prices",
    "/help",
    "/home",
];
const LATIN: &[&str] = &[
    "ab", "ac", "acies", "ad", "aequor", "aestas", "ager", "alia", "altus", "amnis", "animus", "aqua",
    "arbor", "ars", "at", "aurum", "aut", "avis", "bellum", "bonus", "brevis", "caelum", "campus", "carmen",
    "casa", "causa", "cibus", "civitas", "clarus", "collis", "copia", "corpus", "cum", "cura", "de", "dies",
    "domus", "dum", "ego", "enim", "epistula", "equus", "et", "ex", "fabula", "facile", "fama", "familia",
    "fatum", "ferrum", "filia", "flumen", "fortuna", "frigus", "fructus", "gens", "gladius", "gratia",
    "hiems", "homo", "hora", "hortus", "hostis", "iam", "ignis", "imperium", "in", "ingens", "insula",
    "inter", "iter", "labor", "lacus", "lapis", "legio", "lex", "liber", "litus", "locus", "longus", "lumen",
    "luna", "magister", "magnus", "manus", "mare", "medicina", "memoria", "mensa", "metus", "miles", "mons",
    "mora", "mos", "mundus", "murus", "navis", "nec", "nomen", "non", "nox", "numerus", "nunc", "oculus",
    "omnis", "opus", "oratio", "orbis", "ordo", "oppidum", "otium", "panis", "pater", "patria", "pax",
    "pecunia", "per", "pes", "populus", "porta", "portus", "potestas", "proelium", "puer", "pulcher", "quam",
    "quies", "ratio", "regio", "regnum", "res", "ripa", "rota", "sal", "scientia", "sed", "semper",
    "senatus", "sidus", "signum", "silva", "sine", "sol", "spes", "studium", "sub", "tamen", "tectum",
    "templum", "tempus", "terra", "timor", "turris", "ubi", "umbra", "unda", "urbs", "usus", "ut", "vallis",
    "velox", "ventus", "ver", "verbum", "veritas", "via", "vicus", "victoria", "villa", "vinum", "virtus",
    "vita", "vox",
];
const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const LOCALES: &[&str] = &["de-DE", "en-GB", "en-US", "es-MX", "fr-FR", "it-IT", "ja-JP", "pt-BR", "tr-TR"];
const ROLES: &[&str] = &["viewer", "editor", "admin", "billing", "support"];

impl Source {
    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.random.next_u64()) * limit as u128) >> 64) as usize
    }

    fn one_of(&mut self, words: &'static [&'static str]) -> &'static str {
        words[self.below(words.len())]
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a Vec cannot fail.
        let _ = self.out.write_fmt(text);
    }

    fn session(&mut self, clock_ms: &mut u64) {
        *clock_ms += self.below(400) as u64;
        let (first, last) = (self.one_of(FIRST), self.one_of(LAST));
        let (session, user) = (self.random.next_u64(), self.below(5_000_000));
        let (agent, locale, role) = (self.one_of(AGENTS), self.one_of(LOCALES), self.one_of(ROLES));
        let address = [10, self.below(4), self.below(256), self.below(256)];
        let created = *clock_ms - self.below(86_400_000) as u64;
        self.write(format_args!(
            "{{\"session_id\":\"{session:016x}\",\"user\":{{\"id\":{user},\"name\":\"{first} {last}\",\
             \"role\":\"{role}\",\"locale\":\"{locale}\"}},\"ip\":\"{}.{}.{}.{}\",\
             \"user_agent\":\"{agent}\",\"created_at\":{created},\"last_seen\":{},\"history\":[",
            address[0], address[1], address[2], address[3], *clock_ms
        ));
        for step in 0..1 + self.below(4) {
            let (path, ms, status) =
                (self.one_of(PATHS), self.below(900), [200, 200, 200, 304, 404][self.below(5)]);
            let comma = if step == 0 { "" } else { "," };
            self.write(format_args!("{comma}{{\"path\":\"{path}\",\"ms\":{ms},\"status\":{status}}}"));
        }
        let token: String = (0..43).map(|_| char::from(BASE64URL[self.below(64)])).collect();
        let (items, cents, flag) = (self.below(8), self.below(50_000), self.below(2) == 0);
        self.write(format_args!(
            "],\"csrf_token\":\"{token}\",\
             \"cart\":{{\"items\":{items},\"total_cents\":{cents},\"currency\":\"EUR\"}},\
             \"two_factor\":{flag},\"expires_in\":1800}}\n"
        ));
    }

    fn log_line(&mut self, clock_ms: &mut u64) {
        *clock_ms += self.below(120) as u64;
        let level = ["INFO ", "INFO ", "INFO ", "WARN ", "ERROR"][self.below(5)];
        let (host, worker, path) = (self.below(40), self.below(16), self.one_of(PATHS));
        let method = ["GET", "GET", "GET", "POST", "PUT"][self.below(5)];
        let (status, bytes, ms) =
            ([200, 200, 200, 301, 404, 503][self.below(6)], self.below(60_000), self.below(2_000));
        let trace = self.random.next_u64();
        let (seconds, millis) = (*clock_ms / 1_000 % 86_400, *clock_ms % 1_000);
        self.write(format_args!(
            "2026-04-18T{:02}:{:02}:{:02}.{millis:03}Z {level} web-{host:02} worker[{worker}] {method} {path} \
             status={status} bytes={bytes} duration_ms={ms} trace={trace:016x}\n",
            seconds / 3_600,
            seconds / 60 % 60,
            seconds % 60
        ));
    }

    fn points(&mut self, clock_ms: &mut u64) {
        *clock_ms += 10_000;
        for host in 0..20 {
            let region = ["eu-west-1", "us-east-1", "ap-south-1"][host % 3];
            let (user, system, load) = (self.below(10_000), self.below(3_000), self.below(800));
            self.write(format_args!(
                "cpu,host=db-{host:02},region={region} user={}.{:02},system={}.{:02},load1={}.{:02} {}000000\n",
                user / 100,
                user % 100,
                system / 100,
                system % 100,
                load / 100,
                load % 100,
                *clock_ms
            ));
        }
    }

    fn sentence(&mut self) {
        let words = 6 + self.below(12);
        for position in 0..words {
            let word = self.one_of(LATIN);
            match position {
                0 => self.write(format_args!("{}{}", word[..1].to_uppercase(), &word[1..])),
                _ if self.below(9) == 0 => self.write(format_args!(", {word}")),
                _ => self.write(format_args!(" {word}")),
            }
        }
        // A paragraph has six sentences on average.
        let end = if self.below(6) == 0 { ".\n" } else { ". " };
        self.write(format_args!("{end}"));
    }

    /// One period: random bytes, then zeros. Any slice of one period's length has the same share of zeros.
    fn part_random(&mut self, period: usize, compressible: f64) {
        let zeros = (period as f64 * compressible).round() as usize;
        let start = self.out.len();
        self.out.resize(start + period, 0);
        for chunk in self.out[start..start + period - zeros].chunks_mut(8) {
            chunk.copy_from_slice(&self.random.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zstd_19_ratio(bytes: &[u8]) -> f64 {
        let blocks = bytes.chunks_exact(16 << 10);
        let packed: usize = blocks.clone().map(|block| zstd::bulk::compress(block, 19).unwrap().len()).sum();
        (blocks.len() * (16 << 10)) as f64 / packed as f64
    }

    #[test]
    fn sessions_compress_like_real_ones() {
        let ratio = zstd_19_ratio(&Generator::Json.bytes(2 << 20, 128, 1));
        assert!((4.0..=5.0).contains(&ratio), "zstd -19 in 16 KB blocks: {ratio:.2}");
    }

    #[test]
    fn sentences_compress_like_text() {
        let ratio = zstd_19_ratio(&Generator::Lorem.bytes(2 << 20, 128, 1));
        assert!((2.5..=3.5).contains(&ratio), "zstd -19 in 16 KB blocks: {ratio:.2}");
    }

    #[test]
    fn sessions_are_valid_json() {
        let text = String::from_utf8(Generator::Json.bytes(100_000, 128, 2)).unwrap();
        for line in text.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }

    #[test]
    fn the_seed_decides() {
        let random = Generator::Random { compressible: 0.5 };
        for generator in [Generator::Json, Generator::Log, Generator::TimeSeries, Generator::Lorem, random] {
            let bytes = generator.bytes(50_000, 128, 7);
            assert_eq!(bytes, generator.bytes(50_000, 128, 7));
            assert_ne!(bytes, generator.bytes(50_000, 128, 8));
            assert!(bytes.len() >= 50_000);
        }
    }

    #[test]
    fn the_share_of_zeros_is_as_asked_in_every_value() {
        let bytes = Generator::Random { compressible: 0.25 }.bytes(20_000, 128, 3);
        for value in bytes.windows(128).step_by(37) {
            let zeros = value.iter().filter(|&&byte| byte == 0).count();
            assert!((32..=36).contains(&zeros), "{zeros} zeros of 128, 32 expected");
        }
        assert!(zstd_19_ratio(&Generator::Random { compressible: 0.0 }.bytes(1 << 20, 128, 3)) < 1.01);
    }

    #[test]
    fn a_bad_share_is_refused() {
        assert!(Generator::parse("random:1.5").is_err() && Generator::parse("random:x").is_err());
        assert_eq!(Generator::parse("book1").unwrap(), None);
    }
}
