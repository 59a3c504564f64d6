//! `wgrad finetune` and `wgrad generate`, on a small Llama of transformers with a tokenizer of characters.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::mpi::mpirun;
use super::support::folder::{Folder, names};
use super::support::{devices, golden};
use super::{refusal, wgrad};

/// The characters of the tokenizer, by their ids; the last one ends documents.
const CHARACTERS: &str = "abcdefghijklmnopqrstuvwxyz .,\n$";

/// Makes a folder with a model, its tokenizer and data to learn.
fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    let (base, model) = (golden::path("llama/llama"), folder.join("model"));
    std::fs::create_dir(&model).expect("a folder");
    for file in names(&base) {
        std::fs::copy(base.join(&file), model.join(&file)).expect("copied");
    }
    let write = |path: &str, text: String| std::fs::write(folder.join(path), text).expect("written");
    let vocabulary: serde_json::Map<_, _> =
        CHARACTERS.chars().enumerate().map(|(i, c)| (c.to_string(), i.into())).collect();
    let split = json!({
        "type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": false
    });
    let tokenizer = json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": split, "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "."}
    });
    write("model/tokenizer.json", tokenizer.to_string());
    write("model/tokenizer_config.json", json!({"eos_token": "$"}).to_string());
    write("text.txt", "the quick brown fox jumps over the lazy dog.\n".repeat(12));
    let mut lines = String::new();
    for (word, answer) in [("cat", "meow"), ("dog", "woof"), ("cow", "moo")] {
        let line = json!({"prompt": format!("{word} says "), "completion": answer});
        writeln!(lines, "{line}").expect("a line");
    }
    write("lines.jsonl", lines);
    folder
}

/// Returns the arguments of a run on the data of a folder, and of its output there.
fn finetune(folder: &Path, data: &str, out: &str, adapter: &str) -> Vec<String> {
    let path = |name: &str| folder.join(name).display().to_string();
    let words = ["--quiet", "finetune", &path("model"), "--data", &path(data), "--out", &path(out)];
    let rest = ["--seq", "16", "--lr", "0.01", "--adapter", adapter];
    words.into_iter().chain(rest).map(str::to_owned).collect()
}

fn run(arguments: &[String], more: &[&str]) -> String {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let output = wgrad(&arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The loss of the last evaluation.
fn held_out(text: &str) -> f64 {
    let line = text.lines().rfind(|line| line.starts_with("step ")).expect("an evaluation");
    let loss = line.split(" loss ").nth(1).and_then(|rest| rest.split(' ').next());
    loss.and_then(|loss| loss.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn a_model_learns_answers_and_writes_them() {
    for device in devices() {
        let (folder, name) = (folder("finetune-model"), &device.adapter().name);
        let arguments = finetune(&folder, "lines.jsonl", "out", name);
        let text =
            run(&arguments, &["--batch", "3", "--epochs", "60", "--held-out", "0", "--save-every", "30"]);
        assert!(text.contains("41 tokens, 14 to learn; 3 rows of 16 to train on, 79 % filled"), "{text}");
        let packed = finetune(&folder, "lines.jsonl", "packed", name);
        let packed = run(&packed, &["--batch", "3", "--pack", "--held-out", "0", "--length", "1"]);
        assert!(packed.contains("3 rows of 16 to train on, 83 % filled"), "{packed}");
        assert_eq!(text.matches("step ").count(), 2, "{text}");
        assert!(held_out(&text) < 0.3, "{text}");
        let (out, prompt) = (folder.join("out").display().to_string(), ["--prompt", "dog says "]);
        let generate = ["generate", &out, "--temperature", "0", "--seq", "16", "--adapter", name];
        let written = wgrad(&[&generate[..], &prompt].concat());
        assert_eq!(String::from_utf8_lossy(&written.stdout), "dog says woof\n", "{written:?}");
        let said = String::from_utf8_lossy(&written.stderr);
        assert!(said.contains(" of them for a KV cache of 16 tokens"), "{said}");
        // A prompt of nine characters, and room for two more.
        let short = wgrad(&[&generate[..4], &["--seq", "11", "--adapter", name], &prompt].concat());
        assert_eq!(String::from_utf8_lossy(&short.stdout), "dog says woo\n", "{short:?}");
        let error = wgrad(&[&generate[..4], &["--seq", "8", "--adapter", name], &prompt].concat());
        let error = String::from_utf8_lossy(&error.stderr).into_owned();
        assert!(error.contains("a text of 9 tokens for a KV cache of 8"), "{error}");
        // Two prompts, each twice, are written together as alone; of one page of 16 tokens a text takes one.
        let several = ["--prompt", "cat says ", "--samples", "2"];
        let several = wgrad(&[&generate[..], &prompt, &several].concat());
        let [dog, cat] = ["dog says woof", "cat says meow"];
        let texts: String = [dog, dog, cat, cat]
            .iter()
            .zip(1..)
            .map(|(text, i)| format!("==> {i} of 4 <==\n{text}\n"))
            .collect();
        assert_eq!(String::from_utf8_lossy(&several.stdout), texts, "{several:?}");
        let said = String::from_utf8_lossy(&several.stderr);
        assert!(said.contains(" of them for a KV cache of 4 pages of 16 tokens"), "{said}");
        for (format, message) in [("int8", "heads of multiples of 64 elements"), ("int4", "bf16 or int8")] {
            let error = wgrad(&[&generate[..], &prompt, &["--cache", format]].concat());
            let error = String::from_utf8_lossy(&error.stderr).into_owned();
            assert!(error.contains(message), "{error}");
        }
        assert_eq!(
            names(&folder.join("out")),
            [
                "checkpoint.safetensors",
                "config.json",
                "model.safetensors",
                "tokenizer.json",
                "tokenizer_config.json",
            ]
        );
    }
}

/// Ranks in threads and in processes write what one device writes that cuts its batch into as many parts, whatever is
/// sharded among them; rank 0 alone prints.
#[test]
fn ranks_write_the_adapter_of_one_device() {
    let Some(device) = devices().first() else { return };
    let (folder, name) = (folder("finetune-ranks"), &device.adapter().name);
    let of = |out: &str, more: &str| {
        let mut arguments = finetune(&folder, "text.txt", out, name);
        let same = "--pack --lora r=4,dropout=0.1 --frozen-weights bf16 --epochs 2 --save-every 4 --length 2";
        arguments.extend(same.split(' ').chain(more.split(' ')).map(str::to_owned));
        arguments
    };
    let adapter =
        |out: &str| std::fs::read(folder.join(out).join("adapter_model.safetensors")).expect("written");
    let steps = |text: &str| {
        let of_steps = text.lines().filter(|line| line.starts_with("step ")).map(str::to_owned);
        of_steps.collect::<Vec<_>>()
    };
    let one = run(&of("one", "--accumulate 2"), &[]);
    assert!(steps(&one).len() > 1, "{one}");
    for (shard, budget) in [("none", ""), ("optimizer", " --budget 200MB"), ("parameters", "")] {
        let text = run(&of(shard, &format!("--ranks 2 --shard {shard}{budget}")), &[]);
        assert_eq!(steps(&text), steps(&one), "{shard}");
        assert!(adapter(shard) == adapter("one"), "{shard}: another adapter");
    }
    let Some(mut command) = mpirun() else { return };
    command.args(["-n", "2", env!("CARGO_BIN_EXE_wgrad")]).args(of("processes", "--shard optimizer"));
    let output = command.output().expect("mpirun starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(steps(&String::from_utf8_lossy(&output.stdout)), steps(&one));
    assert!(adapter("processes") == adapter("one"), "another adapter of processes");
}

/// Ended by force at some moment, and resumed: the same adapter as of a run that was left alone, without the base in its
/// checkpoint.
#[test]
fn a_killed_run_of_adapters_resumes_to_the_same_bits() {
    if let Some(device) = devices().first() {
        let (folder, name) = (folder("finetune-killed"), &device.adapter().name);
        let of = |out: &str| {
            let mut arguments = finetune(&folder, "text.txt", out, name);
            let more =
                "--lora r=4,dropout=0.1,dora=true --frozen-weights nf4 --epochs 3 --save-every 4 --length 2";
            arguments.extend(more.split(' ').map(str::to_owned));
            arguments
        };
        let (alone, killed) = (of("alone"), of("killed"));
        let text = run(&alone, &["--merge"]);
        assert!(held_out(&text) < 3.7, "{text}");
        let mut child = Command::new(env!("CARGO_BIN_EXE_wgrad"))
            .args(&killed)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let (checkpoint, start) = (folder.join("killed/checkpoint.safetensors"), Instant::now());
        while !checkpoint.exists() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().expect("it ends");
        child.wait().expect("it ended");
        assert!(!folder.join("killed/adapter_model.safetensors").exists(), "it was not killed early enough");
        let again: Vec<&str> = killed.iter().map(String::as_str).collect();
        assert!(refusal(&again).contains("is there already: --resume goes on from it"));
        run(&killed, &["--resume"]);
        let read = |path: &str| std::fs::read(folder.join(path)).expect("a file");
        let (adapter, merged) = ("adapter_model.safetensors", read("alone/model.safetensors"));
        assert!(read(&format!("alone/{adapter}")) == read(&format!("killed/{adapter}")));
        assert!(read("killed/checkpoint.safetensors").len() < merged.len());
        // As if it had been killed after the last step: what is there is written again.
        std::fs::remove_file(folder.join(format!("killed/{adapter}"))).expect("removed");
        assert!(run(&killed, &["--resume"]).contains("steps of --epochs 3 are made"));
        assert!(read(&format!("alone/{adapter}")) == read(&format!("killed/{adapter}")));
        // Over the base as it was trained, the adapter writes what the merged model writes.
        let path = |name: &str| folder.join(name).display().to_string();
        let written = |folder: &str, more: &[&str]| {
            let words = ["generate", folder, "--prompt", "the quick", "--length", "12"];
            let fixed = ["--temperature", "0", "--adapter", name];
            String::from_utf8(wgrad(&[&words[..], &fixed, more].concat()).stdout).expect("text")
        };
        let adapted = written(&path("model"), &["--adapters", &path("alone"), "--weights", "nf4"]);
        assert!(adapted.len() > "the quick\n".len(), "{adapted}");
        assert_eq!(written(&path("alone"), &[]), adapted);
        // In 16 bits the file of the model has half of the bytes.
        std::fs::remove_file(folder.join(format!("killed/{adapter}"))).expect("removed");
        run(&killed, &["--resume", "--merge", "--save-as", "bf16"]);
        let (half, whole) = (read("killed/model.safetensors").len(), merged.len());
        assert!(half * 2 < whole + 4096, "{half} of {whole} bytes");
    }
}

#[test]
fn a_budget_is_kept_or_refused() {
    // How a plan is found does not depend on the adapter.
    if let Some(device) = devices().first() {
        let (folder, name) = (folder("finetune-budget"), &device.adapter().name);
        let of = |out: &str, budget: &str| {
            let mut arguments = finetune(&folder, "text.txt", out, name);
            arguments.extend(["--batch", "16", "--length", "1", "--budget", budget].map(str::to_owned));
            arguments
        };
        let bytes = |text: &str| {
            let line = text.lines().find(|line| line.contains("are created on the device")).expect("a line");
            let size = line.split(" are created").next().expect("a size").replace(' ', "");
            size.parse::<wgrad::Bytes>().expect("a size").0
        };
        let free = bytes(&run(&of("free", "1GB"), &[]));
        let budget = wgrad::Bytes(free * 4 / 5);
        let tight = bytes(&run(&of("tight", &budget.0.to_string()), &[]));
        // Sizes are printed with two digits.
        assert!(tight as f64 <= 1.05 * budget.0 as f64, "{tight} of {}", budget.0);
        let small = of("none", "100KB");
        let error = refusal(&small.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(error.contains("the budget is 97.7 KiB") && error.contains("a smaller --seq"), "{error}");
        assert!(!folder.join("none/checkpoint.safetensors").exists());
    }
}

#[test]
fn mistakes_are_named_before_anything_is_trained() {
    let devices = devices();
    let Some(device) = devices.first() else { return };
    let folder = folder("finetune-mistakes");
    let refused = |change: &dyn Fn(&mut Vec<String>)| {
        let mut arguments = finetune(&folder, "lines.jsonl", "out", &device.adapter().name);
        change(&mut arguments);
        refusal(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let with = |more: &str| refused(&|arguments| arguments.extend(more.split(' ').map(str::to_owned)));
    for (more, part) in [
        ("--batch 50", "no batch of 50"),
        ("--ranks 2 --batch 3 --held-out 0", "the batch of 3"),
        ("--resume", "--resume: there is no"),
        ("--held-out 1", "--held-out 1: it must be at least 0 and below 1"),
        ("--merge", "--lora"),
        ("--lora targets=foo --batch 1", "their paths end in: down_proj"),
        ("--cooperative always --batch 1", "--cooperative always is for measurements"),
        ("--top-p 0 --batch 1", "a top_p of 0"),
    ] {
        let error = with(more);
        assert!(error.contains(part), "{more}: {error}");
    }
    let wrong = refused(&|arguments| arguments[2] = "nowhere".to_owned());
    assert!(wrong.contains("nowhere is no folder"), "{wrong}");
    std::fs::write(folder.join("lines.jsonl"), "{\"text\": \"a\"}\n{\"text\"").expect("written");
    let wrong = with("--quiet");
    assert!(wrong.contains("lines.jsonl line 2: EOF while parsing"), "{wrong}");
    std::fs::remove_file(folder.join("model/tokenizer.json")).expect("removed");
    let wrong = with("--quiet");
    assert!(wrong.contains("tokenizer.json: there is no such file"), "{wrong}");
}
