//! The HTML page of a plan, opened in a browser: what its script computes from the rectangles matches the
//! plan. Without a browser the test reports that it is skipped; `WGRAD_BROWSER` names one that must exist.

use std::path::Path;

use crate::support::browser::{self, browser, said};
use crate::support::folder::Folder;
use wgrad::Bytes;
use wgrad::compile::PlanOptions;
use wgrad::limits::Limits;
use wgrad::models::Model;
use wgrad::report::{Panel, TensorReport, page, tensors};

/// Returns the page's DOM after its scripts have run.
fn open(browser: &Path, page: &str, profile: &Path) -> String {
    browser::open(browser, page, profile, 2000, &["--headless", "--disable-gpu"])
}

/// Returns the number in the attribute `data-{name}` of the table's row for a plan.
fn figure(dom: &str, plan: &str, name: &str) -> u64 {
    let row =
        dom.split(&format!("<tr data-plan=\"{plan}\">")).nth(1).unwrap_or_else(|| panic!("no row {plan}"));
    let row = row.split("</tr>").next().unwrap_or_default();
    let value = row.split(&format!("data-{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
    value.and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("no figure {name} in {row}"))
}

#[test]
fn page_script_reproduces_the_numbers_of_the_plan() {
    let Some(browser) = browser() else { return };
    let step = Model::named("resnet18", 0).unwrap().train_step(16).unwrap();
    let (options, limits) = (PlanOptions::default(), Limits::default());
    let (naive, planned) =
        (step.plan_naive(&options, &limits).unwrap(), step.plan(&options, &limits).unwrap());
    let panels = [Panel { name: "naive", plan: &naive }, Panel { name: "planned", plan: &planned }];
    let folder = Folder::new("page");
    let file = folder.join("plan.html");
    std::fs::write(&file, page(&panels, "ResNet-18 </script> & <b>")).unwrap();

    let dom = open(&browser, &file.display().to_string(), &folder.join("profile"));
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

    let table = open(&browser, &format!("{}#tensors", file.display()), &folder.join("profile"));
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
}

/// Moves the mouse over points of the picture, given as an operation and an address, and records the tooltip
/// at each.
const MOUSE: &str = r#"<script>
const places = PLACES, canvas = document.querySelector("section canvas"), box = canvas.getBoundingClientRect();
const f = frame(canvas.plan, canvas.clientWidth, canvas.clientHeight, canvas.plan.top);
const said = places.map(([operation, address]) => {
  const [x, y] = [box.left + f.x(operation), box.top + f.y(address)];
  canvas.dispatchEvent(new MouseEvent("mousemove", { clientX: x, clientY: y, bubbles: true }));
  const tip = document.getElementById("tip");
  return tip.hidden ? "nothing" : tip.textContent;
});
canvas.dispatchEvent(new MouseEvent("mouseleave"));
said.push(document.getElementById("tip").hidden ? "nothing" : "something");
const list = document.body.appendChild(document.createElement("pre"));
list.id = "said";
list.textContent = said.join("\n--\n");
</script>
</body>"#;

#[test]
fn tooltip_describes_the_tensor_under_the_mouse() {
    let Some(browser) = browser() else { return };
    let step = Model::named("resnet18", 0).unwrap().train_step(16).unwrap();
    let plan = step.plan(&PlanOptions::default(), &Limits::default()).unwrap();
    let end = plan.program.order.len();
    // The picture stacks the arenas.
    let address = |tensor: &TensorReport| {
        let below = plan.layout.arenas().take_while(|(arena, _)| *arena != tensor.region.arena);
        below.map(|(_, bytes)| bytes).sum::<u64>() + tensor.region.offset
    };
    // Only tensors that are wide and high enough for a mouse position in whole pixels.
    let all: Vec<_> = tensors(&plan)
        .into_iter()
        .filter(|t| t.bytes > plan.peak_bytes() / 50 && t.last.min(end - 1) >= t.first + 2)
        .collect();
    let middle = |t: &TensorReport| (t.first + t.last.min(end - 1) + 1) as f64 / 2.0;
    let places: Vec<String> =
        all.iter().map(|t| format!("[{}, {}]", middle(t), address(t) + t.bytes / 2)).collect();
    // The last operation, at the top of the step's arena, where no tensor is alive.
    let nothing = format!("[{}, {}]", end as f64 - 0.5, plan.peak_bytes() - 1);
    let script = MOUSE.replace("PLACES", &format!("[{}, {nothing}]", places.join(", ")));

    let folder = Folder::new("mouse");
    let file = folder.join("plan.html");
    let html = page(&[Panel { name: "planned", plan: &plan }], "ResNet-18");
    std::fs::write(&file, html.replace("</body>", &script)).unwrap();
    let dom = open(&browser, &file.display().to_string(), &folder.join("profile"));
    let said: Vec<&str> = said(&dom).split("\n--\n").collect();

    assert!(all.len() >= 10 && all.iter().any(|t| t.again) && all.iter().any(|t| !t.again), "{}", all.len());
    assert_eq!(said.len(), all.len() + 2);
    assert_eq!(said[all.len()..], ["nothing", "nothing"], "over a hole, and outside of the picture");
    for (t, said) in all.iter().zip(said) {
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], t.name);
        assert_eq!(lines[1], format!("{} {}, {}", t.shape, t.dtype, Bytes(t.bytes)), "{}", t.name);
        assert!(lines[2].starts_with(t.class.name()), "{said}");
        assert!(t.layer.is_empty() || lines[2].contains(&format!("layer {}", t.layer)), "{said}");
        assert_eq!(lines[3], format!("operations {} to {}", t.first, t.last.min(end - 1)), "{}", t.name);
        assert_eq!(lines[4], format!("{}, offset {}", t.region.arena, t.region.offset), "{}", t.name);
        let again = if t.again { "computed again in the backward pass" } else { "computed once" };
        assert_eq!(lines[5], again, "{}", t.name);
    }
}
