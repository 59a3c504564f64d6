//! Texts token by token over a KV cache, against texts as a whole.

use crate::support::close::{Near, assert_close};
use crate::support::devices;
use crate::support::folder::Folder;
use crate::support::golden::{path, wide};
use wgrad::compile::{Forward, PlanOptions, TrainStep};
use wgrad::dtype::DType;
use wgrad::exec::{Debug, Decoder, LoadOptions, ProgramId, Rename, Sampling, Session};
use wgrad::graph::{Attention, Params, Tensor, Trace};
use wgrad::models::{CacheOptions, KvCache, Model, ModelOptions};

/// A small network, with the weights of its folder if it has one.
fn open(name: &str) -> (Model, Option<LoadOptions>) {
    let options = ModelOptions { seq: Some(17), ..ModelOptions::default() };
    if name == "gpt-nano" {
        return (Model::with_options(name, 0, &options).expect("known"), None);
    }
    if name == "heads of 64" {
        let text = std::fs::read_to_string(path("llama/llama/config.json")).expect("a config");
        let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        config["head_dim"] = 64.into();
        let folder = Folder::new("heads-of-64");
        std::fs::write(folder.join("config.json"), config.to_string()).expect("written");
        return (Model::open(Params::new(0), &*folder, &options).expect("a config"), None);
    }
    let model = Model::open(Params::new(0), path("llama").join(name), &options).expect("a folder");
    let load = LoadOptions { rename: Rename::By(model.rename()), ..LoadOptions::default() };
    (model, Some(load))
}

/// A prompt in pieces, then token by token over a KV cache beside a training step: the logits of the whole text.
#[test]
fn decoders_draw_what_whole_texts_draw() {
    let names = |device| ["llama", "gpt-nano", "gemma2", "heads of 64"].map(|name| (device, name));
    for (i, (device, name)) in devices().iter().flat_map(names).enumerate() {
        let (model, weights) = open(name);
        let dtype = match name {
            "heads of 64" => DType::Uint8,
            _ if (i + i / 4) % 2 == 0 => DType::F32,
            _ => DType::F16,
        };
        let room = 16;
        let cache = model
            .kv_cache(&CacheOptions { tokens: room, dtype, ..CacheOptions::default() })
            .expect("a cache");
        let limits = device.limits();
        let train = model.train_step(1).expect("valid").plan(&PlanOptions::default(), limits);
        let whole = Forward::trace(model.params(), "next", |trace| model.next_logits(trace));
        let part = |tokens| {
            Forward::trace(model.params(), "next", |trace| model.cached_logits(trace, &cache, [1, tokens]))
        };
        let forwards = [whole, part(4), part(1)].map(|forward| forward.expect("valid").plan(limits));
        let plans: Vec<_> =
            std::iter::once(train).chain(forwards).map(|plan| plan.expect("planned")).collect();
        let mut session = Session::with_plans(device, &plans.iter().collect::<Vec<_>>(), Debug::default())
            .expect("it opens");
        if let Some(options) = &weights {
            session.load_with(path("llama").join(name), options).expect("it fits");
        }
        let mut decoder = Decoder::new(&session, &[ProgramId(2), ProgramId(3)]).expect("it decodes");
        let logits =
            |session: &mut Session, id| session.output::<f32>(ProgramId(id), "next").expect("an output");
        let near = if dtype == DType::F32 { 2e-5 } else { 2e-2 };
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        let mut text: Vec<u32> = (1..10).map(|i| i * i % model.classes as u32).collect();
        while text.len() <= room {
            let token = decoder.next_token(&mut session, &text, &greedy).expect("a token");
            assert_eq!(decoder.cached(&text), text.len());
            // The last run was that of one token: of nine the first eight are two runs of the other program.
            let found = logits(&mut session, 3);
            let wanted = session.next_token(ProgramId(1), &text, &greedy).expect("a token");
            if dtype == DType::F32 {
                assert_eq!(token, wanted, "{name} after {} tokens", text.len());
            }
            assert_close(name, &found, &wide(&logits(&mut session, 1)), Near { rel: near, abs: near });
            text.push(token);
        }
        let error = decoder.next_token(&mut session, &text, &greedy).unwrap_err().to_string();
        assert!(error.contains("a text of 17 tokens for a KV cache of 16"), "{error}");
        // Another text with the same beginning.
        text.truncate(12);
        text[10] = (text[10] + 1) % model.classes as u32;
        decoder.next_token(&mut session, &text, &greedy).expect("a token");
        let found = logits(&mut session, 2);
        session.next_token(ProgramId(1), &text, &greedy).expect("a token");
        assert_close(name, &found, &wide(&logits(&mut session, 1)), Near { rel: near, abs: near });
        // Files and states are those of a session without a cache.
        let state = session.state().expect("a state");
        let folder = Folder::new("decoder");
        let file = folder.join("model.safetensors");
        session.save(&file).expect("saved");
        let (bare, ..) = open(name);
        let plan = bare.train_step(1).expect("valid").plan(&PlanOptions::default(), limits).expect("planned");
        let mut other = Session::new(device, &plan).expect("it opens");
        other.load(&file).expect("nothing but weights");
        assert_eq!(other.parameters_hash().expect("a hash"), session.parameters_hash().expect("a hash"));
        other.set_state(&state).expect("the same tensors");
    }
}

/// Several texts over few pages: each as it would be alone, with beginnings computed once.
#[test]
fn texts_together_draw_what_each_draws_alone() {
    for device in devices() {
        let (model, weights) = open("llama");
        let limits = device.limits();
        // Texts of 33 tokens share two pages and have one each.
        let options = CacheOptions { tokens: 48, pages: Some(2 + 4), ..CacheOptions::default() };
        let cache = model.kv_cache(&options).expect("a cache");
        assert_eq!((cache.pages(), cache.tokens(), KvCache::pages_of(33)), (6, 48, 3));
        let of = |sizes| {
            Forward::trace(model.params(), "next", |trace| model.cached_logits(trace, &cache, sizes))
                .expect("valid")
                .plan(limits)
                .expect("planned")
        };
        let plans = [[3, 1], [1, 20], [1, 1]].map(of);
        let mut session = Session::with_plans(device, &plans.iter().collect::<Vec<_>>(), Debug::default())
            .expect("it opens");
        let options = weights.expect("weights of a folder");
        session.load_with(path("llama").join("llama"), &options).expect("it fits");
        let programs = [0, 1, 2].map(ProgramId);
        let prompt: Vec<u32> = (1..34).map(|i| i * i % model.classes as u32).collect();
        let samplings = [0, 1, 2, 3].map(|seed| Sampling { seed, temperature: 4.0, ..Sampling::default() });
        // Alone, by a decoder that forgets.
        let alone = samplings.map(|sampling| {
            let mut text = prompt.clone();
            for _ in 0..8 {
                let mut decoder = Decoder::new(&session, &programs[1..]).expect("it decodes");
                text.push(decoder.next_token(&mut session, &text, &sampling).expect("a token"));
            }
            text
        });
        assert!(alone[1..].iter().all(|text| *text != alone[0]), "the samples differ: {alone:?}");
        let mut decoder = Decoder::new(&session, &programs).expect("it decodes");
        let mut together = samplings.map(|_| prompt.clone());
        for _ in 0..8 {
            let texts: Vec<_> = together.iter().map(Vec::as_slice).zip(&samplings).collect();
            let next = decoder.next_tokens(&mut session, &texts).expect("tokens");
            together.iter_mut().zip(next).for_each(|(text, token)| text.push(token));
        }
        assert_eq!(together, alone);
        assert!(together.iter().all(|text| decoder.cached(text) == text.len() - 1));
        // A fifth text that begins as the others finds the shared pages, and none for its end while they are in use.
        let fifth = [&prompt[..32], &[5, 6]].concat();
        let mut texts: Vec<_> = together.iter().map(Vec::as_slice).zip(&samplings).collect();
        texts.push((&fifth, &samplings[0]));
        let error = decoder.next_tokens(&mut session, &texts).unwrap_err().to_string();
        assert!(error.contains("5 texts for a KV cache of 6 pages of 16 tokens"), "{error}");
        assert_eq!(decoder.cached(&fifth), 32);
        // Alone it takes that of another one, which is computed again.
        decoder.next_token(&mut session, &fifth, &samplings[0]).expect("a token");
        assert_eq!(decoder.cached(&fifth), 34);
        let texts: Vec<_> = together.iter().map(Vec::as_slice).zip(&samplings).collect();
        let next = decoder.next_tokens(&mut session, &texts).expect("tokens");
        let of_alone = |i: usize| {
            let mut other = Decoder::new(&session, &programs[1..]).expect("it decodes");
            other.next_token(&mut session, &together[i], &samplings[i]).expect("a token")
        };
        assert_eq!(next, (0..4).map(of_alone).collect::<Vec<_>>());
    }
}

#[test]
fn caches_that_cannot_be_are_refused() {
    let refused = |name: &str, tokens, dtype, why: &str| {
        let options = CacheOptions { tokens, dtype, ..CacheOptions::default() };
        let error = Model::named(name, 0).expect("known").kv_cache(&options).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused("bert-base", 8, DType::F32, "does not predict the next token");
    refused("mlp", 8, DType::F32, "takes no tokens");
    refused("gpt-nano", 0, DType::F32, "must be at least 1");
    refused("gpt2", 1025, DType::F32, "1024 positions");
    for (dtype, why) in [
        (DType::U32, "in u32: it is stored in f32, f16, bf16 or uint8"),
        (DType::Uint8, "heads of multiples of 64 elements"),
    ] {
        let model = Model::named("gpt-nano", 0).expect("known");
        let options = CacheOptions { tokens: 8, dtype, ..CacheOptions::default() };
        let cache = model.kv_cache(&options).expect("traces report it");
        let traced =
            Forward::trace(model.params(), "next", |trace| model.cached_logits(trace, &cache, [1, 1]));
        assert!(traced.unwrap_err().to_string().contains(why));
    }
    let few = CacheOptions { tokens: 33, pages: Some(2), ..CacheOptions::default() };
    let error = Model::named("gpt-nano", 0).expect("known").kv_cache(&few).unwrap_err().to_string();
    assert!(error.contains("2 pages of 16 tokens for texts of up to 33 tokens: these take 3"), "{error}");
    // Not in a training step, nor over all keys.
    let params = Params::new(0);
    let caches = ["k", "v"].map(|name| params.add_cache(name, [1, 8, 1, 4], DType::F32));
    let attend = |trace: &Trace, options: &Attention| {
        let x = trace.input("x", [1, 2, 1, 4]);
        let caches = caches.each_ref().map(|cache| trace.param(cache));
        let pages = trace.ids("pages", [1, 1], 8);
        let length = trace.ids("length", [1], 8);
        x.cached_attention(&x, &x, caches.each_ref(), &pages, &length, options)
    };
    let step = TrainStep::trace(&params, |trace| attend(trace, &Attention::causal()).sum(&[]));
    assert!(step.unwrap_err().to_string().contains("in a training step: it has no gradient"));
    let alibi = Attention { alibi: true, ..Attention::causal() };
    for (options, why) in [(Attention::default(), "not causal"), (alibi, "with ALiBi")] {
        let error = Forward::trace(&params, "y", |trace| attend(trace, &options)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // Each of keys and values in a parameter of its own.
    let params = Params::new(0);
    let cache = params.add_cache("k", [1, 8, 1, 4], DType::F32);
    let attend = |other: &dyn Fn(&Trace) -> Tensor| {
        let traced = Forward::trace(&params, "y", |trace| {
            let x = trace.input("x", [1, 2, 1, 4]);
            let caches = [&trace.param(&cache), &other(trace)];
            let pages = trace.ids("pages", [1, 1], 8);
            let length = trace.ids("length", [1], 8);
            x.cached_attention(&x, &x, caches, &pages, &length, &Attention::causal())
        });
        traced.unwrap_err().to_string()
    };
    assert!(attend(&|trace| trace.param(&cache)).contains("one cache for keys and values"));
    assert!(attend(&|trace| trace.input("v", [1, 8, 1, 4])).contains("a cache that is not a parameter"));
}
