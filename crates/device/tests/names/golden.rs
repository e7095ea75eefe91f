//! The durable texts, byte for byte. `THERMOCLINE_BLESS=1` writes the files anew; a difference is a
//! new version.

use std::fs;
use std::path::PathBuf;
use thermocline_device::TierIndex;
use thermocline_device::identity::InstanceId;
use thermocline_device::names::{HomeFile, LinkText, Serial};

fn assert_golden(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("THERMOCLINE_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert!(golden == text, "{name} is not written as it was");
    golden
}

#[test]
fn links_are_as_documented() {
    let link = LinkText {
        tier: TierIndex(1),
        serial: Serial { generation: 3, counter: 17 },
        name: "000012.sst".to_owned(),
    };
    let golden = assert_golden("names-link-v1.txt", &link.to_string());
    assert_eq!(LinkText::parse(&golden), Some(link));
}

#[test]
fn home_files_are_as_documented() {
    let home = HomeFile {
        instance: InstanceId([9; 16]),
        path: "/var/lib/a \"db\"".into(),
        moving_to: None,
    };
    let golden = assert_golden("names-home-v1.toml", &home.text().unwrap());
    assert_eq!(HomeFile::parse(&golden, "HOME").unwrap(), home);
}
