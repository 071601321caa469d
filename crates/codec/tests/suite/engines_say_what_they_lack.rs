//! A missing engine must say so, once and clearly, and a fallback must be counted. Otherwise people measure the CPU and
//! believe that they measured the device.

use ziptier_codec::block::setting::SettingError;
use ziptier_codec::block::{Huffman, Path, Setting, frame};
use ziptier_codec::format::Format;

fn refusal(setting: &Setting, engine: &str) -> SettingError {
    setting.engine_named(engine).err().unwrap()
}

#[test]
fn the_path_of_the_hardware_is_refused_where_there_is_none() {
    for (format, engine) in [
        (Format::Lz4, "cpu"),
        (Format::Zstd, "cpu"),
        (Format::Deflate, "software"),
        (Format::Deflate, "zlib"),
    ] {
        let error = refusal(&Setting::new(format).with_path(Path::Hardware), engine);
        assert!(error.to_string().contains("cannot be told to use a device"), "{error}");
        assert!(Setting::new(format).with_path(Path::Software).engine_named(engine).is_ok());
    }
    assert_eq!("hardware".parse(), Ok(Path::Hardware));
    assert!("hard".parse::<Path>().unwrap_err().to_string().contains("auto, hardware, software"));
}

#[test]
fn qpl_counts_what_the_cpu_did_for_a_device_and_refuses_our_canned_codes() {
    let setting = Setting::new(Format::Deflate);
    let canned = refusal(&setting.clone().with_huffman(Huffman::Canned), "qpl");
    assert!(canned.to_string().contains("canned codes"), "{canned}");
    let engine = match setting.engine_named("qpl") {
        Ok(engine) => engine,
        Err(error) => {
            let said = error.to_string();
            assert!(
                said.starts_with("engine qpl cannot work here: ") && said.contains("ZIPTIER_QPL"),
                "{said}"
            );
            ziptier_testing::not_run("qpl", &error.to_string());
            return;
        }
    };
    if engine.worker() == "hardware" {
        ziptier_testing::not_run("machine-without-accelerator", "this one has a device");
        return;
    }
    let mut codec = engine.open().unwrap();
    let raw = b"some text that is said again and again; ".repeat(20);
    let (mut stored, mut out) = (Vec::new(), Vec::new());
    frame::pack(codec.as_mut(), Format::Deflate, &raw, &mut stored).unwrap();
    frame::unpack(codec.as_mut(), Format::Deflate, &stored, &mut out, raw.len()).unwrap();
    let counted = engine.counters().snapshot();
    assert_eq!((counted.fallbacks, counted.faults, counted.compress_calls), (2, 0, 1), "{counted}");
    assert!(out == raw && engine.worker() == "software");

    let hardware = refusal(&setting.with_path(Path::Hardware), "qpl").to_string();
    assert!(
        hardware.contains("path hardware needs a device, but libqpl has none: ")
            && hardware.contains("QPL status 5"),
        "{hardware}"
    );
}
