//! Scripts and service managers rely on three things: one line when the server is ready, one sentence and a failing
//! status when it cannot start, and a clean end on request.

use std::net::TcpStream;
use std::process::Command;

use crate::support::{Server, serve};

fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn one_line_says_where_and_how_much() {
    let server = Server::start(serve().args(["--memory", "64MiB", "--threads", "2"]));
    let expected = format!(
        "ziptier {} listens on 127.0.0.1:{} with 64 MiB of memory, codec auto, 2 threads\n",
        env!("CARGO_PKG_VERSION"),
        server.port
    );
    assert_eq!(server.said, expected);
    assert_eq!(server.ask(b"SET k v\r\nGET k\r\n"), "+OK\r\n$1\r\nv\r\n");
    assert_eq!(server.ask(b"CONFIG GET maxmemory\r\n"), "*2\r\n$9\r\nmaxmemory\r\n$8\r\n67108864\r\n");
    assert_eq!(server.ask(b"SHUTDOWN\r\n"), "");
    let output = server.end();
    assert!(output.status.success());
    assert_eq!((output.stdout, output.stderr), (Vec::new(), Vec::new()));
}

#[test]
fn the_line_says_who_packs_if_it_is_not_the_plain_processor() {
    for (args, words) in [
        (&["--codec", "deflate", "--model", "devices=1,timing=off"][..], ", codec deflate (iaa, modelled), "),
        (
            &["--codec", "deflate", "--codec-engine", "iaa", "--model", "timing=off"],
            ", codec deflate (iaa, modelled), ",
        ),
        (&["--codec", "deflate"], ", codec deflate, "),
        (&["--codec", "zstd"], ", codec zstd, "),
    ] {
        let server = Server::start(serve().args(args));
        assert!(server.said.contains(words), "{args:?}: {}", server.said);
        server.signal("-TERM");
        assert!(server.end().status.success());
    }
}

#[test]
fn the_environment_sets_what_flags_do_not() {
    let mut command = serve();
    command.env("ZIPTIER_CODEC", "none").env("ZIPTIER_MEMORY", "1GB");
    let server = Server::start(command.args(["--codec", "token"]));
    assert!(
        server.said.contains("codec token") && server.said.contains("with 1 GB of memory"),
        "{}",
        server.said
    );
    server.signal("-TERM");
    assert!(server.end().status.success());
}

/// A flag that the environment switches off asks for nothing.
#[test]
fn a_flag_that_is_off_needs_no_other_option() {
    let flags = ["ZIPTIER_SALVAGE", "ZIPTIER_TLS_ONLY", "ZIPTIER_FAR_REQUIRE_DAX"];
    Server::start(serve().envs(flags.map(|flag| (flag, "false")))).stop();
    for (flag, needed) in flags.into_iter().zip(["--dir", "--tls-port", "--far"]) {
        let said = refused(serve().env(flag, "true"));
        assert!(said.contains(needed), "{flag}: {said}");
    }
}

#[test]
fn signals_stop_it_cleanly() {
    for name in ["-TERM", "-INT"] {
        let server = Server::start(&mut serve());
        let _idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        server.signal(name);
        let output = server.end();
        assert!(output.status.success(), "{name}");
        assert_eq!(output.stderr, b"");
    }
}

#[test]
fn what_prevents_a_start_is_said_in_one_sentence() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (args, words) in [
        (&["--port", &port][..], "another process already does"),
        (&["--bind", "0.0.0.0"], "say --protected-mode no"),
        (&["--bind", "::"], "say --protected-mode no"),
        (&["--bind", "192.0.2.1", "--protected-mode", "no"], "could not listen on 192.0.2.1:0"),
        (&["--memory", "1KiB"], "too small"),
        (&["--threads", "0"], "ask for at least 1"),
        (&["--huffman", "canned"], "--huffman canned is for deflate blocks, and codec auto has none"),
    ] {
        let said = refused(serve().args(args));
        assert!(said.starts_with("ziptier serve: ") && said.contains(words), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    for (args, words) in [
        (["--codec", "gzip"], "there is no codec 'gzip'"),
        (["--memory", "lots"], "whole number of bytes"),
        (["--protected-mode", "maybe"], "say yes or no"),
        (["--port", "70000"], "70000"),
        // Nobody could ever connect, and CONFIG SET refuses it, too.
        (["--max-clients", "0"], "0 is not in 1.."),
        (["--maxmemory", "64mb"], "a similar argument exists: '--memory'"),
        (["--maxmemory", "64mb"], "Redis's 64mb is --memory 64MiB"),
    ] {
        let said = refused(serve().args(args));
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn other_machines_are_let_in_when_both_flags_say_so() {
    let server = Server::start(serve().args(["--bind", "0.0.0.0", "--protected-mode", "no"]));
    assert!(server.said.contains("listens on 0.0.0.0:"), "{}", server.said);
    server.stop();
}

#[test]
fn a_limit_on_unsent_replies_is_said_at_the_start() {
    let server = Server::start(serve().args(["--client-output-buffer-limit", "normal 1mb 0 0"]));
    let replies = server.ask(b"CONFIG GET client-output-buffer-limit\r\n");
    assert!(replies.contains("normal 1048576 0 0 slave "), "{replies}");
    server.stop();
    let said = refused(serve().args(["--client-output-buffer-limit", "normal 1 2"]));
    assert!(said.contains("Wrong number of arguments"), "{said}");
}

#[test]
fn a_password_opens_the_server_to_other_machines_and_is_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let path = file.to_str().unwrap();
    std::fs::write(&file, "sesame\nsecond line\n").unwrap();
    let mut from_file = serve();
    // An empty variable means no password, as a line of a service's options that was emptied.
    from_file.args(["--requirepass-file", path]).env("ZIPTIER_REQUIREPASS", "");
    let mut from_environment = serve();
    from_environment.env("ZIPTIER_REQUIREPASS", "sesame");
    let mut from_flag = serve();
    from_flag.args(["--requirepass", "sesame"]);
    for command in [&mut from_file, &mut from_environment, &mut from_flag] {
        let server = Server::start(command.args(["--bind", "0.0.0.0"]));
        assert!(!server.said.contains("sesame"), "{}", server.said);
        let replies = server.ask(b"PING\r\nAUTH sesame2\r\nAUTH sesame\r\nPING\r\n");
        let expected = "-NOAUTH Authentication required.\r\n\
            -WRONGPASS invalid username-password pair or user is disabled.\r\n+OK\r\n+PONG\r\n";
        assert_eq!(replies, expected);
        server.signal("-TERM");
        let output = server.end();
        assert!(output.status.success());
        assert_eq!((output.stdout, output.stderr), (Vec::new(), Vec::new()));
    }

    let empty = folder.path().join("empty");
    std::fs::write(&empty, "\n").unwrap();
    let long = "sesame".repeat(100);
    for (args, words) in [
        (&["--requirepass-file", empty.to_str().unwrap()][..], "the password is empty"),
        (&["--requirepass-file", "/no/such/file"], "could not read the password from /no/such/file"),
        (&["--requirepass", &long], "the password has 600 bytes"),
        (&["--requirepass", "", "--bind", "0.0.0.0"], "there is no password; set one (--requirepass)"),
        (&["--requirepass", "sesame", "--requirepass-file", path], "cannot be used with"),
        (&["--requirepass", "sesame", "--timeout", "never"], "never"),
    ] {
        let said = refused(serve().args(args));
        assert!(said.contains(words) && !said.contains("sesame"), "{args:?}: {said}");
    }
    let help = serve().arg("--help").env("ZIPTIER_REQUIREPASS", "sesame").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("ZIPTIER_REQUIREPASS") && !help.contains("sesame"), "{help}");
}

#[test]
fn far_memory_is_named_as_what_it_is_or_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let far = format!("16MiB:{}", folder.path().join("far").display());
    let running = Server::start(serve().args(["--far", &far, "--far-ratio", "1:3"]));
    assert!(
        running.said.contains("\nfar memory: 16 MiB of an ordinary file") && running.said.contains("no DAX"),
        "{}",
        running.said
    );
    let idle = "nothing is demoted to far memory or SSD, since memory has no limit; set one with --memory\n";
    assert!(!running.said.contains(idle), "{}", running.said);
    // The file is taken while the server runs.
    let second = serve().args(["--far", &far]).output().unwrap();
    assert!(String::from_utf8(second.stderr).unwrap().contains("is open already"));
    running.signal("-TERM");
    assert!(running.end().status.success());
    let running = Server::start(serve().args(["--far", &far, "--memory", "0"]));
    assert!(running.said.contains(idle), "{}", running.said);
    running.stop();

    for (arguments, word) in [
        (&["--far", &far, "--far-require-dax"][..], "DAX was demanded"),
        (&["--far", "16MiB:node=99"][..], "no NUMA node 99"),
        (&["--far", "16MiB:/no/such/folder/far"][..], "No such file"),
        (&["--far", &format!("1000000GiB:{}", folder.path().join("other").display())][..], "free"),
        (&["--far", &format!("16MiB:{}", folder.path().display())][..], "a folder"),
    ] {
        let output = serve().args(arguments).output().unwrap();
        let words = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && words.contains(word), "{arguments:?}: {words}");
        assert_eq!(words.trim_end().lines().count(), 1, "{words}");
    }
    assert!(!folder.path().join("other").exists());
}

#[test]
fn ports_for_tls_are_told_and_their_files_are_read_first() {
    let folder = tempfile::tempdir().unwrap();
    let line = "req -x509 -days 2 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=server \
                -keyout key -out cert";
    let made = Command::new("openssl").args(line.split_whitespace()).current_dir(&folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let with = |files: [&str; 2], more: &[&str]| {
        let mut command = serve();
        command.current_dir(&folder).args(["--tls-port", "0", "--tls-cert-file", files[0]]);
        command.args(["--tls-key-file", files[1]]).args(more);
        command
    };
    let said = refused(&mut with(["missing", "key"], &["--tls-auth-clients", "no"]));
    assert!(said.starts_with("ziptier serve: could not read the certificate from missing: "), "{said}");
    let said = refused(&mut with(["cert", "key"], &[]));
    assert!(said.contains("name --tls-ca-cert-file, or say --tls-auth-clients no"), "{said}");
    let said = refused(serve().args(["--tls-port", "0", "--tls-cert-file", "cert"]));
    assert!(said.contains("--tls-key-file"), "{said}");
    let mut twice = serve();
    twice.current_dir(&folder).args(["--port", "6380", "--tls-port", "6380", "--tls-auth-clients", "no"]);
    let said = refused(twice.args(["--tls-cert-file", "cert", "--tls-key-file", "key"]));
    assert!(said.contains("cannot listen on port 6380 for TLS and for clients without"), "{said}");

    let both = Server::start(&mut with(
        ["cert", "key"],
        &["--tls-auth-clients", "optional", "--tls-ca-cert-file", "cert"],
    ));
    let (plain, tls) = both.said.split_once(" (TLS) with ").unwrap().0.rsplit_once(" and ").unwrap();
    assert!(plain.ends_with(&format!("127.0.0.1:{}", both.port)), "{}", both.said);
    assert_eq!(both.ask(b"PING\r\n"), "+PONG\r\n");
    let port = tls.rsplit_once(':').unwrap().1;
    assert_eq!(
        both.ask(b"CONFIG GET tls-port\r\n"),
        format!("*2\r\n$8\r\ntls-port\r\n${}\r\n{port}\r\n", port.len())
    );
    both.stop();
    let mut alone = with(["cert", "key"], &["--tls-auth-clients", "no", "--tls-only"]);
    let alone = Server::start(&mut alone);
    assert!(
        alone.said.contains(&format!("listens on 127.0.0.1:{} (TLS) with", alone.port)),
        "{}",
        alone.said
    );
    let cli = ["-p", &alone.port.to_string(), "--tls", "--cacert", "cert", "ping"];
    let pinged = Command::new("redis-cli").args(cli).current_dir(&folder).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&pinged.stdout), "PONG\n", "{pinged:?}");
}

/// An option of RocksDB's stood before the port, since it had no heading.
#[test]
fn the_help_tells_each_option_below_its_heading() {
    for flag in ["-h", "--help"] {
        let output = serve().arg(flag).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let at = |word: &str| help.find(word).unwrap_or_else(|| panic!("{word}: {help}"));
        assert!(at("--help") < at("Clients:") && at("Backend:") < at("--rocksdb-library"), "{help}");
    }
}

/// systemd gives a service up that it has started five times within ten seconds. A server whose address came later than
/// that stayed down.
#[test]
fn the_service_waits_for_its_address() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/ziptier.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let pause = unit.lines().find_map(|line| line.strip_prefix("RestartSec=")?.strip_suffix('s')).unwrap();
    assert!(5 * pause.parse::<u64>().unwrap() > 10, "{pause}");
}
