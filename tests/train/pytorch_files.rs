//! State dicts as `torch.save` writes them. `golden/state_dict.py` made the files, and safetensors files of the same
//! numbers.

use std::path::PathBuf;

use crate::support::folder::Folder;
use crate::support::golden::path;
use crate::support::{devices, on_each};
use wgrad::exec::{Ignored, LoadOptions, ProgramId};

use super::weight_files::{Plans, adamw, assert_logits, assert_same, logits, open, plans, refused, state};

fn golden(name: &str) -> PathBuf {
    path(&format!("state_dict_{name}"))
}

#[test]
fn pt_files_load_like_safetensors_files_of_the_same_numbers() {
    on_each(devices(), |device| {
        let Plans { evaluate, .. } = plans(device, &adamw());
        for (name, from) in [("f32", vec![]), ("views", vec![("bn.bias", "F64"), ("fc.bias", "BF16")])] {
            let mut session = open(device, &evaluate);
            session.load(golden(&format!("{name}.safetensors"))).expect("it fits");
            let wanted = state(&mut session);
            let mut session = open(device, &evaluate);
            let report =
                session.load_with(golden(&format!("{name}.pt")), &LoadOptions::default()).expect("it fits");
            assert!(report.is_complete() && report.loaded == 7 && report.steps.is_none(), "{report}");
            assert_eq!(report.ignored, [("bn.num_batches_tracked".to_owned(), Ignored::BatchCount)]);
            let converted: Vec<_> = report.converted.iter().map(|c| (&*c.name, &*c.from)).collect();
            assert!(
                from.iter().all(|pair| converted.contains(pair)) && converted.len() == from.len(),
                "{report}"
            );
            assert_same(name, &wanted, &state(&mut session));
            if name == "f32" {
                assert_logits(&logits(&mut session, ProgramId(0)), "f32");
            }
        }
        assert!(wgrad::exec::read_notes(golden("f32.pt")).expect("it is read").is_empty());
    });
}

#[test]
fn pt_files_that_do_not_fit_are_refused_with_the_reason() {
    let folder = Folder::new("pt");
    let file = folder.join("changed.pt");
    let whole = std::fs::read(golden("f32.pt")).expect("committed");
    // Replaces bytes by as many others wherever they occur.
    let replaced = |from: &str, to: &str| {
        let mut bytes = whole.clone();
        let places: Vec<usize> =
            (0..=whole.len() - from.len()).filter(|at| whole[*at..].starts_with(from.as_bytes())).collect();
        assert!(!places.is_empty() && from.len() == to.len(), "{from}");
        places.iter().for_each(|at| bytes[*at..at + to.len()].copy_from_slice(to.as_bytes()));
        bytes
    };
    let cases = [
        (
            replaced("_rebuild_tensor_v2", "_rebuild_tensor_v9"),
            "would import `torch._utils._rebuild_tensor_v9`",
        ),
        (
            replaced("ccollections\nOrderedDict", "ccollections\nOrderedFile"),
            "would import `collections.OrderedFile`",
        ),
        (replaced("little", "bigbig"), "big-endian"),
        (replaced("fc.weight", "fd.weight"), "`fd.weight` is in the file, not in the model: F32 [10, 128]"),
        (replaced("/data.pkl", "/dato.pkl"), "without the record `data.pkl`"),
        (whole[..whole.len() - 1].to_vec(), "no directory at its end"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.".to_vec(), "before 1.6"),
    ];
    on_each(devices(), |device| {
        let Plans { evaluate, .. } = plans(device, &adamw());
        let mut session = open(device, &evaluate);
        let before = state(&mut session);
        for (bytes, part) in &cases {
            std::fs::write(&file, bytes).expect("written");
            refused(session.load_with(&file, &LoadOptions::default()), &[part]);
        }
        assert_same("refused", &before, &state(&mut session));
    });
}
