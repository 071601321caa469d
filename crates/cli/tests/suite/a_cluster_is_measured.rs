//! `ziptier bench` on a real node of Cassandra. A benchmark printed the CPU time of its own client as that of the node,
//! and called a table of tokens measured that was still compressed by LZ4.
//!
//! `make test-cassandra` starts the node and compiles the feature `cql`.

use std::process::{Command, Output};

fn ziptier(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ziptier"));
    command.arg("bench").args(arguments);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Without a driver the command says how to get one; with it, that nobody listens.
#[test]
fn a_host_without_a_node_is_refused_in_one_sentence() {
    let output = ziptier(&["--target", "cql://127.0.0.1:1", "--seconds", "0.1"]).output().unwrap();
    let said = said(&output);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    let expected = match cfg!(feature = "cql") {
        true => "start a node of Cassandra there, or name its rpc_address",
        false => "cargo build --release --package ziptier-cli --features cql",
    };
    assert!(said.contains(expected), "{said}");
}

#[cfg(feature = "cql")]
mod on_a_node {
    use super::*;

    /// The address of the node, if there is one.
    fn node() -> Option<String> {
        let address = std::env::var("ZIPTIER_CQL").ok();
        if address.is_none() {
            ziptier_testing::not_run("cassandra", "no node of Cassandra: run make test-cassandra");
        }
        address
    }

    /// A short run with everything that a table is asked for.
    fn measured(target: &str, more: &[&str]) -> Vec<Row> {
        let mix = "read=50,write=40,delete=10";
        let output = ziptier(&["--target", target, "--mix", mix, "--keys", "2000", "--threads", "4"])
            .args(["--seconds", "1", "--warmup", "0.2", "--format", "tsv"])
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
        rows(&String::from_utf8(output.stdout).unwrap())
    }

    struct Row(Vec<(String, String)>);

    impl Row {
        fn text(&self, column: &str) -> &str {
            &self.0.iter().find(|(name, _)| name == column).unwrap().1
        }

        fn number(&self, column: &str) -> f64 {
            self.text(column).parse().unwrap_or_else(|_| panic!("{column} is {}", self.text(column)))
        }
    }

    fn rows(tsv: &str) -> Vec<Row> {
        let mut lines = tsv.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
        let names = lines.next().unwrap();
        lines.map(|line| Row(names.iter().cloned().zip(line).collect())).collect()
    }

    #[test]
    fn rows_of_bytes_come_back_and_each_compressor_does_its_work() {
        let Some(node) = node() else { return };
        let codecs =
            "builtin-lz4,builtin-zstd,builtin-deflate,ziptier-deflate,ziptier-lz4,ziptier-zstd,ziptier-token";
        let all = measured(&node, &["--codec", codecs, "--value-bytes", "1024", "--multi-get", "4"]);
        let bytes = |codec: &str| {
            all.iter().find(|row| row.text("codec") == codec).unwrap().number("loaded_held_bytes")
        };
        for row in &all {
            let codec = row.text("codec");
            assert_eq!((row.number("mismatches"), row.number("files")), (0.0, 1.0), "{codec}");
            assert!(row.number("qps_per_cpu_core") > 0.0 && row.number("after_cpu_sec") >= 0.0, "{codec}");
            // The client knows nothing of the node's memory.
            assert_eq!([row.text("rss_bytes"), row.text("user_sec")], ["NA"; 2], "{codec}");
        }
        assert_eq!(all.len(), 7);
        assert!(bytes("builtin-zstd") < 0.9 * bytes("builtin-lz4"), "flush_compression is table");
        assert!(bytes("ziptier-token") < 0.9 * bytes("builtin-lz4"), "the dictionary is in use");
        assert!((0.95..1.05).contains(&(bytes("ziptier-lz4") / bytes("builtin-lz4"))));
    }

    #[test]
    fn readings_come_back() {
        let Some(node) = node() else { return };
        let texts = ["--corpus", "lorem", "--value-bytes", "800..1200", "--key-shape", "random"];
        for row in measured(&format!("{node}/timeseries"), &texts) {
            assert_eq!(row.number("mismatches"), 0.0);
            assert!(row.number("held_per_raw") < 1.0);
        }
    }

    /// Two clusters cannot be had on one node, but two tables under two addresses can.
    #[test]
    fn tables_side_by_side_have_keys_of_their_own() {
        let Some(node) = node() else { return };
        let twice = format!("{node}+{}", node.trim_start_matches("cql://"));
        for row in measured(&twice, &["--instances", "2", "--codec", "builtin-lz4"]) {
            assert_eq!((row.number("mismatches"), row.number("instances")), (0.0, 2.0));
            assert!(row.number("keys") > 2_000.0, "{}", row.text("keys"));
            assert!(row.number("files") == 1.0 && row.number("qps_per_cpu_core") > 0.0);
        }
        let refused = ziptier(&["--target", &twice, "--codec", "builtin-lz4"]).output().unwrap();
        assert!(said(&refused).contains("give --instances 2"), "{}", said(&refused));
    }

    #[test]
    fn rates_grow_until_the_node_is_too_slow() {
        let Some(node) = node() else { return };
        for row in measured(&node, &["--until-p99", "200ms", "--codec", "builtin-lz4"]) {
            assert!(row.number("offered_qps") > 0.0 && row.number("qps_per_cpu_core") > 0.0);
            assert!(row.number("read_p99_us") <= 200_000.0 && row.number("write_p99_us") <= 200_000.0);
        }
    }

    #[test]
    fn the_dictionary_of_the_node_is_in_use_where_the_node_trains_one() {
        let Some(node) = node() else { return };
        let run = |codec: &str| {
            let options =
                ["--codec", codec, "--value-bytes", "1024", "--block-bytes", "4096", "--format", "tsv"];
            ziptier(&["--target", &node, "--keys", "2000", "--seconds", "0.3"])
                .args(options)
                .output()
                .unwrap()
        };
        let trained = run("builtin-zstd-dictionary");
        if std::env::var("ZIPTIER_CASSANDRA").is_ok_and(|version| version == "5") {
            assert!(
                said(&trained).contains("a later Cassandra may have this compressor"),
                "{}",
                said(&trained)
            );
            return;
        }
        let bytes = |output: Output| {
            assert!(output.status.success(), "{}", said(&output));
            rows(&String::from_utf8(output.stdout).unwrap())[0].number("loaded_held_bytes")
        };
        let (trained, plain) = (bytes(trained), bytes(run("builtin-zstd")));
        assert!(trained < 0.95 * plain, "{trained} bytes with a dictionary, {plain} without");
        let tokens = bytes(run("ziptier-token"));
        assert!(tokens < plain, "{tokens} bytes with tokens, {plain} without");
    }

    #[test]
    fn the_size_is_missing_without_a_command_that_tells_it() {
        let Some(node) = node() else { return };
        let bench = |codec: &str| {
            ziptier(&["--target", &node, "--keys", "500", "--seconds", "0.3", "--workload", "read_only"])
                .args(["--format", "tsv", "--codec", codec])
                .env_remove("ZIPTIER_NODETOOL")
                .output()
                .unwrap()
        };
        let output = bench("builtin-zstd");
        assert!(output.status.success(), "{}", said(&output));
        let all = rows(&String::from_utf8(output.stdout).unwrap());
        for column in ["held_bytes", "held_per_raw", "ratio", "saved_pct", "loaded_held_bytes", "files"] {
            assert_eq!(all[0].text(column), "NA", "{column}");
        }
        let refused = bench("ziptier-token");
        assert!(
            !refused.status.success() && said(&refused).contains("give --nodetool"),
            "{}",
            said(&refused)
        );
    }

    #[test]
    fn the_suite_compares_on_rows_and_on_readings() {
        let Some(node) = node() else { return };
        let folder = tempfile::tempdir().unwrap();
        let output =
            ziptier(&["--suite", "cassandra", "--target", &node, "--keys", "1000", "--seconds", "0.3"])
                .args([
                    "--codec",
                    "builtin-lz4,builtin-zstd,ziptier-token",
                    "--value-bytes",
                    "256",
                    "--rounds",
                    "2",
                ])
                .args(["--out", folder.path().to_str().unwrap()])
                .output()
                .unwrap();
        let printed = String::from_utf8(output.stdout.clone()).unwrap();
        assert!(output.status.success(), "{printed}{}", said(&output));
        let words = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("flush_compression table") && words.contains("extrap."), "{printed}");
        let of_nodes = words.split(", client on processors 0").next().unwrap();
        assert!(of_nodes.len() < words.len() && of_nodes.contains("on processors 0"), "{printed}");
        assert!(
            said(&output).contains("CPU time of rounds before the first that is measured"),
            "{}",
            said(&output)
        );
        assert!(printed.lines().all(|line| line.len() <= 80), "{printed}");
        let written = std::fs::read_dir(folder.path()).unwrap().map(|run| run.unwrap().path());
        let all: Vec<Row> = written
            .flat_map(|run| rows(&std::fs::read_to_string(run.join("compressors.tsv")).unwrap()))
            .collect();
        assert_eq!(all.len(), 3 * 2 * 2, "compressors, workloads, and rows of two kinds");
        for row in &all {
            assert!(row.number("cpu_us_per_operation") > 0.0 && row.number("size_to_lz4") > 0.0);
            assert!(row.number("throughput_to_zstd") > 0.0 && row.number("qps_to_zstd") > 0.0);
        }
    }
}
