use std::string::{String, ToString};

use super::*;

fn read(text: &str) -> Result<Configuration, String> {
    let variables = Variables { options: Some(text.as_bytes()), ..Variables::default() };
    Configuration::read(&variables).map_err(|mistake| mistake.to_string())
}

fn memkind(tiers: &str, thresholds: Option<&str>, nodes: Option<&str>) -> Result<Configuration, String> {
    let variables = Variables {
        options: None,
        tiers: Some(tiers.as_bytes()),
        thresholds: thresholds.map(str::as_bytes),
        nodes: nodes.map(str::as_bytes),
    };
    Configuration::read(&variables).map_err(|mistake| mistake.to_string())
}

const DEFAULT: Configuration = Configuration::DEFAULT;

fn nodes(numbers: &[u32]) -> FarMemory {
    let mut nodes = NodeSet::default();
    numbers.iter().for_each(|&node| nodes.insert(node));
    FarMemory::Nodes(nodes)
}

#[test]
fn an_environment_without_variables_gives_the_defaults() {
    assert_eq!(Configuration::read(&Variables::default()), Ok(DEFAULT));
    assert_eq!(read(""), Ok(DEFAULT));
    assert_eq!(read(" ,; \n"), Ok(DEFAULT));
    assert_eq!((DEFAULT.policy, DEFAULT.ratio), (Policy::Ratio, Ratio { dram: 1, far: 3 }));
}

#[test]
fn every_option_is_read() {
    let ratio = Ratio { dram: 3, far: 1 };
    let gold = ClassName::new(b"gold");
    for (text, expected) in [
        ("policy=only-dram", Configuration { policy: Policy::OnlyDram, ..DEFAULT }),
        ("policy=only-far", Configuration { policy: Policy::OnlyFar, ..DEFAULT }),
        ("policy=only-pmem", Configuration { policy: Policy::OnlyFar, ..DEFAULT }),
        ("policy = threshold", Configuration { policy: Policy::Threshold, ..DEFAULT }),
        ("ratio=3:1", Configuration { ratio, ..DEFAULT }),
        ("ratio 3 1", Configuration { ratio, ..DEFAULT }),
        ("threshold=1k", Configuration { policy: Policy::Threshold, threshold_bytes: 1024, ..DEFAULT }),
        ("threshold=100,ratio=3:1", Configuration { ratio, threshold_bytes: 100, ..DEFAULT }),
        ("initial-dynamic-threshold=100", DEFAULT),
        (
            "threshold-min=24;threshold-max=10000",
            Configuration { threshold_min_bytes: 24, threshold_max_bytes: 10_000, ..DEFAULT },
        ),
        ("threshold-max=none", DEFAULT),
        ("pin=96", Configuration { pinned_below_bytes: 96, ..DEFAULT }),
        ("tables-in-dram=no", Configuration { tables_in_dram: false, ..DEFAULT }),
        ("dram-limit=2GiB", Configuration { dram_limit_bytes: 2 << 30, ..DEFAULT }),
        ("far-limit=8GB", Configuration { far_limit_bytes: 8_000_000_000, ..DEFAULT }),
        ("dram-limit=none", DEFAULT),
        ("far=auto", DEFAULT),
        ("far=simulated", Configuration { far: FarMemory::Simulated, ..DEFAULT }),
        ("far=node:1", Configuration { far: nodes(&[1]), ..DEFAULT }),
        ("far=nodes:1+3-4", Configuration { far: nodes(&[1, 3, 4]), ..DEFAULT }),
        ("far node=2", Configuration { far: nodes(&[2]), ..DEFAULT }),
        ("class=gold", Configuration { class: gold, ..DEFAULT }),
        ("class-file=/run/c", Configuration { class_file: FilePath::new(b"/run/c"), ..DEFAULT }),
        ("period-ms=20", Configuration { period_ms: 20, ..DEFAULT }),
        ("strict", Configuration { strict: true, ..DEFAULT }),
        ("strict=yes", Configuration { strict: true, ..DEFAULT }),
        ("strict=no", DEFAULT),
        ("ratio=1:1,ratio=3:1", Configuration { ratio, ..DEFAULT }),
    ] {
        assert_eq!(read(text), Ok(expected), "{text}");
    }
}

#[test]
fn lines_of_tiered_mem_dbs_file_are_read() {
    let text = "memory-alloc-policy ratio\ndram-pmem-ratio 1 4\nstatic-threshold 64\ninitial-dynamic-threshold 128\n\
                dynamic-threshold-min 24\ndynamic-threshold-max 10000\nmemory-ratio-check-period 100\n\
                hashtable-on-dram no\npmem-variant multiple\n";
    let expected = Configuration {
        ratio: Ratio { dram: 1, far: 4 },
        threshold_min_bytes: 24,
        threshold_max_bytes: 10_000,
        tables_in_dram: false,
        ..DEFAULT
    };
    assert_eq!(read(text), Ok(expected));
}

#[test]
fn each_wrong_option_has_its_sentence() {
    const RATIO: &str = "a ratio is DRAM:FAR, two whole numbers to 65535, not both 0; write ratio=1:3";
    const POLICY: &str = "a policy is only-dram, only-far, threshold or ratio; write policy=ratio";
    const BOUNDS: &str = "a threshold is a number of bytes, and threshold-min is at most threshold-max";
    const LIMIT: &str = "a limit is a number of bytes, or none; write 4GiB";
    const FAR: &str =
        "far memory is auto, simulated or a list of nodes below 1024; write far=node:1 or far=node:1+2";
    const CLASS: &str =
        "the name of a class has 1 to 31 of the characters a-z, 0-9, - and _; write class=gold";
    const FILE: &str =
        "the file of classes is an absolute path of at most 127 bytes; write class-file=/run/ziptier/classes";
    const PIN: &str = "pin takes the number of bytes below which allocations stay in DRAM; write pin=64";
    for (text, wrong, expected) in [
        ("ratio=1", "ratio=1", RATIO),
        ("ratio", "ratio", RATIO),
        ("policy=only-dram, ratio=0:0", "ratio=0:0", RATIO),
        ("ratio=1:70000", "ratio=1:70000", RATIO),
        ("policy=random", "policy=random", POLICY),
        ("policy", "policy", POLICY),
        ("memory-alloc-policy both", "memory-alloc-policy both", POLICY),
        ("threshold=big", "threshold=big", "a threshold is a number of bytes; write threshold=64"),
        (
            "initial-dynamic-threshold=-1",
            "initial-dynamic-threshold=-1",
            "a threshold is a number of bytes; write initial-dynamic-threshold=64",
        ),
        ("threshold-min=x", "threshold-min=x", BOUNDS),
        ("threshold-max=", "threshold-max=", BOUNDS),
        ("threshold-min=10,threshold-max=9", "threshold-min=10,threshold-max=9", BOUNDS),
        ("pin=all", "pin=all", PIN),
        ("tables-in-dram=1", "tables-in-dram=1", "tables-in-dram is yes or no"),
        ("dram-limit=lots", "dram-limit=lots", LIMIT),
        ("far-limit=1.5GiB", "far-limit=1.5GiB", LIMIT),
        ("far=node:", "far=node:", FAR),
        ("far=node:1024", "far=node:1024", FAR),
        ("far=/mnt/pmem", "far=/mnt/pmem", FAR),
        ("class=Gold", "class=Gold", CLASS),
        ("class=", "class=", CLASS),
        ("class-file=classes", "class-file=classes", FILE),
        ("period-ms=0", "period-ms=0", "the period is 1 to 60000 milliseconds; write period-ms=100"),
        ("strict=maybe", "strict=maybe", "strict is yes or no"),
    ] {
        assert_eq!(read(text), Err(std::format!("ZIPTIER_ALLOC has `{wrong}`: {expected}")), "{text}");
    }
    let unknown = "ZIPTIER_ALLOC has `ration=1:3`, which is no option; the options are policy, ratio, threshold, \
                   threshold-min, threshold-max, pin, tables-in-dram, dram-limit, far-limit, far, class, class-file, \
                   period-ms, strict, initial-dynamic-threshold";
    assert_eq!(read("policy=ratio,ration=1:3"), Err(unknown.to_string()));
}

#[test]
fn a_sentence_repeats_no_control_characters_and_no_long_text() {
    let text = std::format!("ratio=\u{1b}[31m{}", "x".repeat(100));
    let sentence = read(&text).unwrap_err();
    assert!(sentence.starts_with("ZIPTIER_ALLOC has `ratio=?[31mxxx"), "{sentence}");
    assert!(sentence.contains("xxx...`: a ratio is"), "{sentence}");
    assert!(sentence.len() < 200, "{sentence}");
}

#[test]
fn strict_is_known_whatever_else_is_wrong() {
    for (text, strict) in [
        ("strict,ratio=x", true),
        ("ratio=x\nstrict=yes", true),
        ("ratio=x, strict=no", false),
        ("ratio=x", false),
        ("ratio=strict", false),
        ("strict=perhaps", true),
    ] {
        let variables = Variables { options: Some(text.as_bytes()), ..Variables::default() };
        assert_eq!(Configuration::read(&variables).unwrap_err().strict, strict, "{text}");
    }
}

#[test]
fn memkinds_tiers_are_read() {
    let two = "KIND:DRAM,RATIO:1;KIND:KMEM_DAX,RATIO:4;POLICY:DYNAMIC_THRESHOLD";
    let ratio = Configuration { ratio: Ratio { dram: 1, far: 4 }, ..DEFAULT };
    assert_eq!(memkind(two, None, None), Ok(ratio));
    assert_eq!(memkind(two, None, Some("1,3")), Ok(Configuration { far: nodes(&[1, 3]), ..ratio }));
    let bounds =
        Configuration { threshold_bytes: 64, threshold_min_bytes: 24, threshold_max_bytes: 10_000, ..ratio };
    assert_eq!(memkind(two, Some("INIT_VAL:64,MIN_VAL:24,MAX_VAL:10000"), None), Ok(bounds));
    let file = "KIND:FS_DAX,PATH:/mnt/pmem,PMEM_SIZE_LIMIT:10G,RATIO:4;KIND:DRAM,RATIO:1;POLICY:STATIC_RATIO";
    let simulated = Configuration { far: FarMemory::Simulated, far_limit_bytes: 10 << 30, ..ratio };
    assert_eq!(memkind(file, None, Some("1")), Ok(simulated));
    let dram = Configuration { policy: Policy::OnlyDram, ..DEFAULT };
    assert_eq!(memkind("KIND:DRAM,RATIO:1;POLICY:STATIC_RATIO", None, None), Ok(dram));
    let far = Configuration { policy: Policy::OnlyFar, ..DEFAULT };
    assert_eq!(memkind("KIND:KMEM_DAX,RATIO:1;POLICY:STATIC_RATIO", None, None), Ok(far));

    let both = Variables { options: Some(b""), tiers: Some(b"nonsense"), ..Variables::default() };
    assert_eq!(Configuration::read(&both), Ok(DEFAULT), "ZIPTIER_ALLOC goes before memkind's variables");
}

#[test]
fn each_wrong_tier_has_its_sentence() {
    const TIER: &str = "a tier is KIND:DRAM, KIND:KMEM_DAX or KIND:FS_DAX,PATH:folder, and RATIO:number to 65535; \
                        write KIND:DRAM,RATIO:1;KIND:KMEM_DAX,RATIO:3;POLICY:STATIC_RATIO";
    const LAST: &str = "the last part is POLICY:STATIC_RATIO, or POLICY:DYNAMIC_THRESHOLD behind two tiers";
    const DRAM: &str = "KIND:DRAM,RATIO:1";
    let after_dram = |rest: &str| std::format!("{DRAM};{rest};POLICY:STATIC_RATIO");
    for wrong in [
        "KIND:HBM,RATIO:1",
        "KIND:KMEM_DAX",
        "RATIO:1",
        "KIND:KMEM_DAX,RATIO:0",
        "KIND:KMEM_DAX,RATIO:65536",
        "KIND:KMEM_DAX,RATIO:-1",
        "KIND:KMEM_DAX,RATIO:1,PATH:/mnt",
        "KIND:FS_DAX,RATIO:1",
        "KIND:FS_DAX,PATH:,RATIO:1",
        "KIND:KMEM_DAX,RATIO:1,PMEM_SIZE_LIMIT:1G",
        "KIND:FS_DAX,PATH:/mnt,RATIO:1,PMEM_SIZE_LIMIT:0",
        "KIND:KMEM_DAX,RATIO:1,COLOUR:red",
        "KIND KMEM_DAX,RATIO:1",
        "",
    ] {
        let expected = std::format!("MEMKIND_MEM_TIERS has `{wrong}`: {TIER}");
        assert_eq!(memkind(&after_dram(wrong), None, None), Err(expected));
    }
    let twice =
        "MEMKIND_MEM_TIERS has `KIND:DRAM,RATIO:1`: there may be one tier of DRAM and one of far memory";
    assert_eq!(memkind(&after_dram(DRAM), None, None), Err(twice.to_string()));
    for text in [
        DRAM,
        "KIND:DRAM,RATIO:1;POLICY:BEST",
        "KIND:DRAM,RATIO:1;POLICY:DYNAMIC_THRESHOLD",
        "POLICY:STATIC_RATIO",
        "KIND:DRAM,RATIO:1;POLICY:STATIC_RATIO;KIND:KMEM_DAX,RATIO:1",
    ] {
        assert_eq!(memkind(text, None, None), Err(std::format!("MEMKIND_MEM_TIERS has `{text}`: {LAST}")));
    }
}

#[test]
fn each_wrong_threshold_and_node_of_memkind_has_its_sentence() {
    const TWO: &str = "KIND:DRAM,RATIO:1;KIND:KMEM_DAX,RATIO:4;POLICY:DYNAMIC_THRESHOLD";
    const THRESHOLD: &str = "there is one group of thresholds in bytes, and INIT_VAL lies between MIN_VAL and \
                             MAX_VAL; write INIT_VAL:64,MIN_VAL:24,MAX_VAL:10000";
    for text in [
        "",
        "INIT_VAL:64;INIT_VAL:1024",
        "INIT_VAL:1k",
        "VAL:64",
        "INIT_VAL:10,MIN_VAL:24,MAX_VAL:10000",
        "INIT_VAL:64,MIN_VAL:65",
        "MIN_VAL:65,MAX_VAL:64",
    ] {
        let expected = std::format!("MEMKIND_MEM_THRESHOLDS has `{text}`: {THRESHOLD}");
        assert_eq!(memkind(TWO, Some(text), None), Err(expected));
    }
    let nodes = "MEMKIND_DAX_KMEM_NODES has `one`: it is a list of nodes below 1024, such as 1,2";
    assert_eq!(memkind(TWO, None, Some("one")), Err(nodes.to_string()));
}

#[test]
fn a_running_program_takes_some_options_and_a_wrong_change_changes_nothing() {
    let mut now = Configuration { policy: Policy::OnlyDram, ..DEFAULT };
    now.change(b"ratio=2:1,dram-limit=1GiB").unwrap();
    let expected = Configuration { ratio: Ratio { dram: 2, far: 1 }, dram_limit_bytes: 1 << 30, ..DEFAULT };
    assert_eq!(now, expected);
    for text in ["ratio=1:1,far=node:1", "class=gold", "strict", "initial-dynamic-threshold=1", "period-ms=1"]
    {
        let sentence = now.change(text.as_bytes()).unwrap_err().to_string();
        let ending =
            "a running program does not take it; set it in ZIPTIER_ALLOC, and start the program again";
        assert!(sentence.starts_with("the change has `") && sentence.ends_with(ending), "{sentence}");
    }
    assert!(now.change(b"ratio=1:1,dram-limit=x").is_err());
    assert_eq!(now, expected);
}

#[test]
fn names_of_classes_and_paths_have_bounds() {
    let long = [b'a'; 32];
    assert_eq!(ClassName::new(&long), None);
    let name = ClassName::new(&long[..31]).unwrap();
    assert_eq!(name.as_str().len(), 31);
    let mut path = [b'/'; 128];
    assert_eq!(FilePath::new(&path), None);
    assert!(FilePath::new(&path[..127]).is_some());
    path[5] = 0;
    assert_eq!(FilePath::new(&path[..10]), None);
    assert_eq!(FilePath::new(b"/run/x/c").unwrap().folder().as_c_str(), c"/run/x");
    assert_eq!(FilePath::new(b"/c").unwrap().folder().as_c_str(), c"/");
}
