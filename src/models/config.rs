//! Sizes of a model from Hugging Face's `config.json`.

use serde_json::Value;

use super::gemma::Gemma;
use super::gpt::GptConfig;
use super::llama::LlamaConfig;
use crate::error::{Error, Result};
use crate::graph::{Rope, RopeScaling};

/// What a `config.json` describes.
pub(super) enum Pretrained {
    Gpt(GptConfig),
    /// With the longest sequence that it was trained on.
    Llama(LlamaConfig, usize),
}

/// The values of `model_type` that are known.
const TYPES: [&str; 7] = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text"];

/// Reads the text of a `config.json`, which messages call `name`.
///
/// # Errors
/// [`Error::Setting`] with the name and the entry for a text that is not JSON, an entry that is missing or of another type,
/// and for what no model of this crate has, such as another activation.
pub(super) fn read(name: &str, text: &[u8]) -> Result<Pretrained> {
    let failed = |message: String| Error::setting("config.json", format!("{name}: {message}"));
    let config = serde_json::from_slice(text).map_err(|e| failed(format!("damaged: {e}")))?;
    parse(&Entries(&config)).map_err(failed)
}

/// The entries of an object.
struct Entries<'a>(&'a Value);

impl<'a> Entries<'a> {
    /// `null` is an absent entry.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn has<T>(
        &self,
        name: &str,
        kind: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| format!("`{name}` is {value}, expected {kind}"))
    }

    fn count(&self, name: &str) -> Result<Option<usize>, String> {
        self.has(name, "a whole number, 1 or more", |value| {
            value.as_u64().filter(|n| *n > 0).and_then(|n| usize::try_from(n).ok())
        })
    }

    fn number(&self, name: &str) -> Result<Option<f64>, String> {
        self.has(name, "a number", Value::as_f64)
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, String> {
        self.has(name, "true or false", Value::as_bool)
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, String> {
        self.has(name, "a string", Value::as_str)
    }

    /// An entry that must be there.
    fn sure<T>(&self, name: &str, value: Result<Option<T>, String>) -> Result<T, String> {
        value?.ok_or_else(|| format!("`{name}` is missing"))
    }

    /// Refuses an entry with another value than the one that is computed; absent, it has this one.
    fn only(&self, name: &str, wanted: impl Into<Value>) -> Result<(), String> {
        let wanted = wanted.into();
        match self.get(name) {
            Some(other) if *other != wanted => {
                Err(format!("`{name}` is {other}; only {wanted} is supported"))
            }
            _ => Ok(()),
        }
    }
}

fn parse(config: &Entries) -> Result<Pretrained, String> {
    let kind = config.sure("model_type", config.text("model_type"))?;
    match kind {
        "gpt2" => gpt(config).map(Pretrained::Gpt),
        "llama" | "mistral" | "qwen2" | "qwen3" | "gemma2" | "gemma3_text" => {
            let context = config.sure("max_position_embeddings", config.count("max_position_embeddings"))?;
            Ok(Pretrained::Llama(llama(config, kind)?, context))
        }
        other => Err(format!("`model_type` is \"{other}\"; known: {}", TYPES.join(", "))),
    }
}

fn gpt(config: &Entries) -> Result<GptConfig, String> {
    let count = |name: &str| config.sure(name, config.count(name));
    let width = count("n_embd")?;
    config.only("activation_function", "gelu_new")?;
    config.only("scale_attn_weights", true)?;
    config.only("scale_attn_by_inverse_layer_idx", false)?;
    config.only("tie_word_embeddings", true)?;
    config.only("add_cross_attention", false)?;
    config.only("n_inner", 4 * width)?;
    if let Some(eps) = config.number("layer_norm_epsilon")?.filter(|eps| *eps != 1e-5) {
        return Err(format!("`layer_norm_epsilon` is {eps}; only 1e-5 is supported"));
    }
    let dropout = |name: &str| Ok::<_, String>(config.number(name)?.unwrap_or(0.1));
    let [one, two, three] = ["resid_pdrop", "embd_pdrop", "attn_pdrop"].map(dropout);
    let (dropout, two, three) = (one?, two?, three?);
    if two != dropout || three != dropout {
        return Err(format!(
            "`resid_pdrop` {dropout}, `embd_pdrop` {two} and `attn_pdrop` {three} differ; one probability is supported"
        ));
    }
    Ok(GptConfig {
        vocabulary: count("vocab_size")?,
        context: count("n_positions")?,
        layers: count("n_layer")?,
        heads: count("n_head")?,
        width,
        dropout,
    })
}

fn llama(config: &Entries, kind: &str) -> Result<LlamaConfig, String> {
    let count = |name: &str| config.sure(name, config.count(name));
    let (width, heads, layers) =
        (count("hidden_size")?, count("num_attention_heads")?, count("num_hidden_layers")?);
    let gemma = if kind.starts_with("gemma") { Some(gemma(config, kind, layers)?) } else { None };
    if gemma.is_none() {
        config.only("hidden_act", "silu")?;
    }
    config.only("attention_bias", false)?;
    config.only("mlp_bias", false)?;
    config.only("attention_dropout", 0.0)?;
    config.only("partial_rotary_factor", 1.0)?;
    let window = match kind {
        "mistral" if config.0.get("sliding_window").is_none() => Some(4096),
        "mistral" | "gemma2" | "gemma3_text" => config.count("sliding_window")?,
        "qwen2" | "qwen3" if config.flag("use_sliding_window")? == Some(true) => {
            // Layers below this one see all positions.
            let first = config.count("max_window_layers")?.unwrap_or(28);
            if first < layers {
                return Err(format!(
                    "`use_sliding_window` with `max_window_layers` {first} of {layers}: a window of some layers only is not \
                     supported"
                ));
            }
            None
        }
        _ => None,
    };
    Ok(LlamaConfig {
        vocabulary: count("vocab_size")?,
        layers,
        heads,
        kv_heads: config.count("num_key_value_heads")?.unwrap_or(heads),
        head_size: config.count("head_dim")?.unwrap_or(width / heads),
        width,
        hidden: count("intermediate_size")?,
        rope: rope(config, "full_attention", "rope_theta")?,
        eps: config.number("rms_norm_eps")?.unwrap_or(1e-6) as f32,
        window,
        tied: config.flag("tie_word_embeddings")?.unwrap_or(gemma.is_some()),
        qkv_bias: kind == "qwen2",
        qk_norm: kind == "qwen3" || kind == "gemma3_text",
        gemma,
    })
}

fn gemma(config: &Entries, kind: &str, layers: usize) -> Result<Gemma, String> {
    for name in ["hidden_activation", "hidden_act"] {
        config.only(name, "gelu_pytorch_tanh")?;
    }
    config.only("use_bidirectional_attention", false)?;
    let caps = ["attn_logit_softcapping", "final_logit_softcapping"].map(|name| config.number(name));
    let [scores, logits] = caps;
    let caps = match (scores?, logits?) {
        (Some(scores), Some(logits)) => Some([scores as f32, logits as f32]),
        (None, None) => None,
        _ => {
            return Err("of `attn_logit_softcapping` and `final_logit_softcapping` one is missing".to_owned());
        }
    };
    let three = kind == "gemma3_text";
    let pattern = config.count("sliding_window_pattern")?.or(config.count("_sliding_window_pattern")?);
    let mut global_every = pattern.unwrap_or(if three { 6 } else { 2 });
    if let Some(types) = config.get("layer_types").and_then(Value::as_array) {
        let global = |i: usize| types.get(i).is_some_and(|kind| kind == "full_attention");
        // Without a global layer, later ones would be.
        global_every = (0..layers).find(|&i| global(i)).map_or(layers + 1, |first| first + 1);
        if (0..layers).any(|i| global(i) != (i + 1).is_multiple_of(global_every)) {
            return Err(format!("`layer_types`: only every {global_every}th layer could see all positions"));
        }
    }
    let score_size = config.number("query_pre_attn_scalar")?.unwrap_or(256.0) as f32;
    let local_rope =
        if three { Some(rope(config, "sliding_attention", "rope_local_base_freq")?) } else { None };
    Ok(Gemma { score_size, caps, global_every, local_rope })
}

/// transformers 5 writes `rope_parameters`, for each kind of layers where they differ; older versions `base` and, where
/// frequencies are scaled, `rope_scaling`, which is not for layers with a window.
fn rope(config: &Entries, kind: &str, base: &str) -> Result<Rope, String> {
    let name = if config.get("rope_parameters").is_some() { "rope_parameters" } else { "rope_scaling" };
    let empty = Value::Object(serde_json::Map::new());
    let scaling = Entries(config.get(name).unwrap_or(&empty));
    let scaling = match scaling.get(kind) {
        Some(own) => Entries(own),
        None if name == "rope_scaling" && kind == "sliding_attention" => Entries(&empty),
        None => scaling,
    };
    let base = scaling.number("rope_theta")?.or(config.number(base)?).unwrap_or(10_000.0) as f32;
    let number = |name: &str| scaling.sure(name, scaling.number(name)).map(|number| number as f32);
    let kind = scaling.text("rope_type")?.or(scaling.text("type")?).unwrap_or("default");
    let scaling = match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: number("factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            context: number("original_max_position_embeddings")?,
        },
        other => {
            return Err(format!("`{name}` of type \"{other}\"; known: default, linear, llama3"));
        }
    };
    let rope = Rope { base, scaling };
    rope.check().map(|()| rope).map_err(|why| format!("`{name}`: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Pretrained, String> {
        parse(&Entries(&serde_json::from_str(text).expect("JSON")))
    }

    /// As published with the weights, with entries that change nothing here left out.
    #[test]
    fn published_configs_are_the_models_by_name() {
        let llama = parsed(
            r#"{"attention_bias": false, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
            "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
            "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
            "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
            "tie_word_embeddings": true, "vocab_size": 128256}"#,
        );
        assert!(
            matches!(llama, Ok(Pretrained::Llama(config, 131_072)) if config == LlamaConfig::LLAMA_32_1B)
        );
        let qwen = parsed(
            r#"{"attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 896, "intermediate_size": 4864,
            "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14,
            "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
            "sliding_window": 32768, "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936}"#,
        );
        assert!(matches!(qwen, Ok(Pretrained::Llama(config, _)) if config == LlamaConfig::QWEN25_0_5B));
        let mistral = parsed(
            r#"{"hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
            "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": false,
            "vocab_size": 32000}"#,
        );
        assert!(matches!(mistral, Ok(Pretrained::Llama(config, _)) if config == LlamaConfig::MISTRAL_7B));
        let gpt = parsed(
            r#"{"activation_function": "gelu_new", "attn_pdrop": 0.1, "embd_pdrop": 0.1, "layer_norm_epsilon": 1e-05,
            "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
            "resid_pdrop": 0.1, "vocab_size": 50257}"#,
        );
        assert!(matches!(gpt, Ok(Pretrained::Gpt(config)) if config == GptConfig::GPT2));
    }

    /// The configs of the hub, which are of older versions of transformers.
    #[test]
    fn published_configs_of_gemma_are_the_models_by_name() {
        let two = parsed(
            r#"{"attention_bias": false, "attention_dropout": 0.0, "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid",
            "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation":
            "gelu_pytorch_tanh", "hidden_size": 2304, "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type":
            "gemma2", "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "query_pre_attn_scalar": 256,
            "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 256000}"#,
        );
        assert!(matches!(two, Ok(Pretrained::Llama(config, 8192)) if config == LlamaConfig::GEMMA_2_2B));
        let three = |more: &str| {
            parsed(&format!(
                r#"{{"attention_bias": false, "attn_logit_softcapping": null, "final_logit_softcapping": null, "head_dim": 256,
                "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 6912,
                "max_position_embeddings": 32768, "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26,
                "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
                "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512, "vocab_size": 262144{more}}}"#
            ))
        };
        for more in [r#", "sliding_window_pattern": 6"#, ""] {
            let three = three(more);
            assert!(
                matches!(three, Ok(Pretrained::Llama(config, 32_768)) if config == LlamaConfig::GEMMA_3_1B)
            );
        }
        let error = |more: &str| three(more).err().expect("refused");
        assert!(
            error(r#", "layer_types": ["full_attention", "sliding_attention"]"#).contains("`layer_types`")
        );
        assert!(error(r#", "use_bidirectional_attention": true"#).contains("`use_bidirectional_attention`"));
        assert!(error(r#", "hidden_act": "silu""#).contains("`hidden_act` is \"silu\""));
    }

    #[test]
    fn what_no_model_has_is_named() {
        let with = |more: &str| {
            parsed(&format!(
                r#"{{"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1,
                "vocab_size": 5, "intermediate_size": 8, "max_position_embeddings": 9{more}}}"#
            ))
        };
        let error = |result: Result<Pretrained, String>| result.err().expect("refused");
        assert!(with("").is_ok());
        for (more, part) in [
            (r#", "hidden_act": "gelu""#, "`hidden_act` is \"gelu\"; only \"silu\" is supported"),
            (r#", "attention_bias": true"#, "`attention_bias` is true"),
            (r#", "rope_scaling": {"rope_type": "yarn"}"#, "`rope_scaling` of type \"yarn\""),
            (r#", "rope_scaling": {"type": "linear"}"#, "`factor` is missing"),
            (r#", "rope_scaling": {"type": "linear", "factor": 0.5}"#, "a scaling by 0.5"),
            (
                r#", "num_key_value_heads": "two""#,
                "`num_key_value_heads` is \"two\", expected a whole number",
            ),
        ] {
            assert!(error(with(more)).contains(part), "{}", error(with(more)));
        }
        assert!(error(parsed(r#"{"model_type": "bloom"}"#)).contains("known: gpt2, llama"));
        assert!(error(parsed("{}")).contains("`model_type` is missing"));
        assert!(error(parsed(r#"{"model_type": "llama"}"#)).contains("`max_position_embeddings` is missing"));
    }
}
