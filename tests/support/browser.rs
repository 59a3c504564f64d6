//! Chromium without a screen, which opens pages and prints their DOM after their scripts have run, or sends what
//! they found out.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::skip::skip;

/// Options with which Chromium has WebGPU on its software adapter.
pub const WEBGPU_ON_SWIFTSHADER: [&str; 3] =
    ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan,WebGPU"];

/// Returns a Chromium-based browser that runs headless; reports a skip where there is none. `WGRAD_BROWSER`
/// names one that must exist.
pub fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("WGRAD_BROWSER") {
        return Some(named.into());
    }
    let found = installed();
    if found.is_none() {
        skip("no chromium or google-chrome here; `scripts/setup.sh --browser` installs one");
    }
    found
}

fn installed() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    names.iter().flat_map(|name| folders.iter().map(move |f| f.join(name))).find(|path| path.is_file())
}

/// Opens a page, given as a file with or without a fragment, and returns its DOM. `virtual_ms` is the time that
/// passes for the page while it has nothing to do.
pub fn open(browser: &Path, page: &str, profile: &Path, virtual_ms: u32, options: &[&str]) -> String {
    let output = Command::new(browser)
        .args(["--no-sandbox", "--dump-dom", "--window-size=1600,1000"])
        .args(options)
        .arg(format!("--virtual-time-budget={virtual_ms}"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{page}"))
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", browser.display()));
    String::from_utf8(output.stdout).expect("a page is UTF-8")
}

/// Returns the text of the element `<pre id="said">`.
pub fn said(dom: &str) -> &str {
    let said = dom.split("<pre id=\"said\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    said.unwrap_or_else(|| panic!("the page said nothing: {dom}"))
}

/// Serves a page to a browser until its script posts an answer, and returns that. A page that waits for the GPU
/// needs this: a browser that prints a DOM does not wait for it.
pub fn answer(browser: &Path, page: &str, profile: &Path, options: &[&str], limit: Duration) -> String {
    answer_beside(browser, page, None, profile, options, limit)
}

/// Does what [`answer`] does, and serves the files of a folder as well. A page that asks for `/lose` loses its GPU: the
/// browser's process for it is killed, as by a driver's reset.
pub fn answer_beside(
    browser: &Path,
    page: &str,
    folder: Option<&Path>,
    profile: &Path,
    options: &[&str],
    limit: Duration,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("supported");
    let address = listener.local_addr().expect("it is bound");
    let mut child = Command::new(browser)
        .args(["--headless=new", "--no-sandbox"])
        .args(options)
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("http://{address}/"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e}", browser.display()));
    let start = Instant::now();
    let mut answer = None;
    while answer.is_none() && start.elapsed() < limit {
        match listener.accept() {
            Ok((stream, _)) => answer = serve(stream, page, folder, profile).unwrap_or_default(),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    answer.unwrap_or_else(|| panic!("the page gave no answer within {limit:?}"))
}

/// Kills the processes for the GPU of the browser with this profile.
fn lose_gpu(profile: &Path) {
    let profile = format!("--user-data-dir={}", profile.display());
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    for number in numbers.filter_map(|name| name.to_str()?.parse::<u32>().ok()) {
        // Its words are separated by spaces or zeros.
        let command = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command);
        if command.contains("--type=gpu-process") && command.contains(&profile) {
            // The shell's own `kill`: small systems have no program of that name.
            let _ = Command::new("sh").args(["-c", &format!("kill -9 {number}")]).status();
        }
    }
}

/// Answers one request; returns the body of a POST.
fn serve(
    stream: TcpStream,
    page: &str,
    folder: Option<&Path>,
    profile: &Path,
) -> std::io::Result<Option<String>> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut reader = BufReader::new(stream);
    let (mut lines, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        lines.push(line);
    }
    let first = lines.first().cloned().unwrap_or_default();
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let asked = first.strip_prefix("GET /").and_then(|rest| rest.split([' ', '?']).next());
    if asked == Some("lose") {
        lose_gpu(profile);
    }
    // Only names: no path leads out of the folder.
    let file = asked.zip(folder).filter(|(name, _)| !name.is_empty() && !name.contains('/'));
    let (status, content) = match file.map(|(name, folder)| std::fs::read(folder.join(name))) {
        Some(Ok(bytes)) => ("200 OK", bytes),
        Some(Err(_)) => ("404 Not Found", Vec::new()),
        None if asked == Some("") => ("200 OK", page.as_bytes().to_vec()),
        None => ("200 OK", Vec::new()),
    };
    let kind = match asked.and_then(|name| name.rsplit_once('.')) {
        Some((_, "js")) => "text/javascript",
        Some((_, "css")) => "text/css",
        Some((_, "wasm")) => "application/wasm",
        _ => "text/html",
    };
    let length = content.len();
    let head = format!("content-type: {kind}\r\ncontent-length: {length}\r\nconnection: close");
    write!(reader.get_mut(), "HTTP/1.1 {status}\r\n{head}\r\n\r\n")?;
    reader.get_mut().write_all(&content)?;
    Ok(first.starts_with("POST ").then(|| String::from_utf8_lossy(&body).into_owned()))
}
