//! A trained network as a folder of Hugging Face: `GPT2LMHeadModel` and a tokenizer of characters.

use std::path::Path;

use serde_json::{Map, Value, json};
use wgrad::exec::Session;
use wgrad::{Error, Result};

use super::support::tasks::Description;

/// Writes `config.json`, `tokenizer.json`, `tokenizer_config.json` and `model.safetensors`. The folder is made if it does not
/// exist. With a share of the parameters on each rank, all ranks must call it.
pub fn write(folder: &Path, description: &Description, session: &mut Session) -> Result<()> {
    let failed =
        |e: std::io::Error| Error::Data { what: folder.display().to_string(), message: e.to_string() };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let Description { config, characters } = description;
    let model = json!({
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": "gelu_new",
        "vocab_size": config.vocabulary,
        "n_positions": config.context,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_embd": config.width,
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        "bos_token_id": null,
        "eos_token_id": null,
    });
    let all = characters.as_text();
    let vocabulary: Map<String, Value> =
        all.chars().enumerate().map(|(id, one)| (one.to_string(), id.into())).collect();
    // A character that is unknown becomes the first one.
    let unknown = all.chars().next().map(String::from);
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {
            "type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": false
        },
        "post_processor": null,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": unknown},
    });
    let settings =
        json!({"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false});
    for (name, content) in
        [("config.json", model), ("tokenizer.json", tokenizer), ("tokenizer_config.json", settings)]
    {
        std::fs::write(folder.join(name), format!("{content:#}\n")).map_err(failed)?;
    }
    session.save(folder.join("model.safetensors"))
}
