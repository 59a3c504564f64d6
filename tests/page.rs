//! The page of a plan, opened by a browser: what its script computes from the rectangles is what the plan says.
//! Without a browser the test says that it is skipped; `WGRAD_BROWSER` names one that must be there.

use std::path::{Path, PathBuf};
use std::process::Command;

use wgrad::limits::Limits;
use wgrad::models::Model;
use wgrad::plan::PlanOptions;
use wgrad::report::{Panel, page, tensors};

/// A browser of Chromium's family that runs without a screen.
fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("WGRAD_BROWSER") {
        return Some(named.into());
    }
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    names.iter().flat_map(|name| folders.iter().map(move |f| f.join(name))).find(|path| path.is_file())
}

/// The page's text after its scripts have run.
fn open(browser: &Path, file: &Path, profile: &Path) -> String {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", browser.display()));
    String::from_utf8(output.stdout).expect("a page is UTF-8")
}

/// The number in the attribute `data-{name}` of the table's row for a plan.
fn figure(dom: &str, plan: &str, name: &str) -> u64 {
    let row =
        dom.split(&format!("<tr data-plan=\"{plan}\">")).nth(1).unwrap_or_else(|| panic!("no row {plan}"));
    let row = row.split("</tr>").next().unwrap_or_default();
    let value = row.split(&format!("data-{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
    value.and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("no figure {name} in {row}"))
}

#[test]
fn a_browser_reads_the_plans_numbers_back() {
    let Some(browser) = browser() else {
        eprintln!("SKIPPED: no chromium or google-chrome on this machine; `apt-get install chromium`");
        return;
    };
    let step = Model::named("resnet18", 0).unwrap().train_step(16).unwrap();
    let (options, limits) = (PlanOptions::default(), Limits::default());
    let (naive, planned) =
        (step.plan_naive(&options, &limits).unwrap(), step.plan(&options, &limits).unwrap());
    let panels = [Panel { name: "naive", plan: &naive }, Panel { name: "planned", plan: &planned }];
    let folder = std::env::temp_dir().join(format!("wgrad-page-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("plan.html");
    std::fs::write(&file, page(&panels, "ResNet-18 </script> & <b>")).unwrap();

    let dom = open(&browser, &file, &folder.join("profile"));
    assert!(dom.contains("ResNet-18 &lt;/script&gt; &amp; &lt;b&gt;</h1>"), "the title is not a text");
    for Panel { name, plan } in panels {
        let all = tensors(plan);
        let again: u64 = all.iter().filter(|t| t.again).map(|t| t.bytes).sum();
        assert_eq!(figure(&dom, name, "bytes"), plan.peak_bytes(), "{name}");
        assert_eq!(figure(&dom, name, "position"), plan.peak.position as u64, "{name}");
        assert_eq!(figure(&dom, name, "tensors"), all.len() as u64, "{name}");
        assert_eq!(figure(&dom, name, "again"), again, "{name}");
        let live: u64 = plan.class_bytes().iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(figure(&dom, name, "live"), live, "{name}");
    }
    assert_eq!(figure(&dom, "planned", "live"), planned.lower_bound_bytes());

    let table =
        open(&browser, &PathBuf::from(format!("{}#tensors", file.display())), &folder.join("profile"));
    let rows: Vec<u64> = table
        .split("<tr data-bytes=\"")
        .skip(1)
        .map(|row| row.split('"').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(rows.len(), tensors(&planned).len());
    assert_eq!(rows.iter().sum::<u64>(), tensors(&planned).iter().map(|t| t.bytes).sum::<u64>());
    let most = tensors(&planned).into_iter().max_by_key(|t| {
        let until = (t.last + 1).min(planned.program.order.len());
        t.bytes * (until - t.first) as u64
    });
    assert_eq!(rows[0], most.unwrap().bytes, "the first row holds most bytes for most operations");
    std::fs::remove_dir_all(&folder).unwrap();
}
