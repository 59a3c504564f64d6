//! The page that `scripts/web.sh` builds, in a browser. `WGRAD_WEB` names the folder of the built page; without it, or
//! without a browser, its tests report a skip.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs::{copy, read_dir};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::browser::{WEBGPU_ON_SWIFTSHADER, answer_beside, browser};
use super::folder::Folder;
use super::skip::skip;
use serde_json::Value;

/// Browsers compile kernels slowly, more so beside other tests.
const LIMIT: Duration = Duration::from_secs(600);

/// The built page, beside other files under these names.
pub fn site(test: &str, others: &[(PathBuf, &str)]) -> Option<(PathBuf, Folder)> {
    let browser = browser()?;
    let Some(built) = std::env::var_os("WGRAD_WEB") else {
        skip("WGRAD_WEB names no page; `scripts/web.sh --out DIR` builds one");
        return None;
    };
    let folder = Folder::new(test);
    let files = read_dir(&built).unwrap_or_else(|e| panic!("{}: {e}", Path::new(&built).display()));
    for file in files.map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
    for (file, name) in others {
        copy(file, folder.join(name)).unwrap();
    }
    Some((browser, folder))
}

/// Opens a page with this script beside the built one; returns what `tell` of the script was given.
pub fn run(browser: &Path, folder: &Folder, script: &str) -> Value {
    let page = format!(
        r#"<!doctype html><meta charset="utf-8"><iframe id="frame" width="1200" height="900"></iframe><script type="module">
const tell = said => fetch("/said", {{ method: "POST", body: JSON.stringify(said) }});
try {{ {script} }} catch (error) {{ tell({{ error: String(error.stack ?? error) }}); }}
</script>"#
    );
    let options =
        [&WEBGPU_ON_SWIFTSHADER[..], &["--disable-background-networking", "--no-first-run"]].concat();
    let profile = folder.join("profile");
    let said = answer_beside(browser, &page, Some(&**folder), &profile, &options, LIMIT);
    let said: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert!(said.get("error").is_none(), "{}", said["error"].as_str().unwrap_or_default());
    said
}
