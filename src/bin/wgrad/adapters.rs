//! `wgrad adapters`: lists the adapters.

use std::path::PathBuf;

use serde_json::json;
use wgrad::device::{Adapter, Device, DeviceOptions, Select, cache_folder};
use wgrad::{Bytes, Error, Result};

#[derive(clap::Args)]
pub struct Options {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Try the cooperative matrices of GPUs, as the first plan in f16 does.
    #[arg(long = "try")]
    try_them: bool,
    /// Folder in which the verdict on cooperative matrices is kept, by default the user's cache folder.
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    let adapters = Device::list();
    if options.json {
        let list: Vec<_> = adapters.iter().map(|adapter| to_json(adapter, options)).collect();
        println!("{}", serde_json::Value::Array(list));
        return Ok(());
    }
    if adapters.is_empty() {
        return Err(Error::NoAdapter(String::new()));
    }
    for adapter in &adapters {
        let (limits, (smallest, largest)) = (&adapter.limits, adapter.subgroups);
        println!("{}", adapter.selector());
        println!("  backend    {} · {} · {}", adapter.backend, adapter.kind, adapter.driver);
        println!("  buffers    ≤ {} · bindings ≤ {}", Bytes(limits.max_buffer), Bytes(limits.max_binding));
        println!("  per stage  {} storage buffers", limits.max_storage_buffers);
        println!(
            "  workgroups ≤ {} threads · {} per dimension",
            limits.max_invocations, limits.max_workgroups
        );
        println!("  f16        {}", limits.f16.name());
        let subgroups = match (smallest, largest) {
            (0, 0) => "none".to_owned(),
            (a, b) if a == b => a.to_string(),
            (a, b) => format!("{a} to {b}"),
        };
        println!("  subgroups  {subgroups}");
        let cooperative = adapter.cooperative.first().map_or_else(|| "none".to_owned(), ToString::to_string);
        println!("  matrices   {cooperative}; {}", verdict(adapter, options));
        if let Some(memory) = adapter.memory {
            println!("  memory     {memory}");
        }
        println!("  {}", adapter.reason());
    }
    Ok(())
}

/// Returns in words whether plans use the adapter's cooperative matrices, and why.
fn verdict(adapter: &Adapter, options: &Options) -> String {
    let opened = || {
        let cache = options.cache.clone().or_else(cache_folder);
        let select = Select::Named(adapter.selector());
        Device::open(&DeviceOptions { select, cache, ..DeviceOptions::default() })
    };
    if adapter.cooperative.is_empty() {
        return format!("not used: {}", adapter.cooperative_reason);
    }
    match opened() {
        Ok(device) => device.cooperative_verdict(options.try_them).unwrap_or_else(|| {
            "not tried yet: the first plan in f16 tries them, or `wgrad adapters --try`".to_owned()
        }),
        Err(error) => format!("not used: {error}"),
    }
}

fn to_json(adapter: &Adapter, options: &Options) -> serde_json::Value {
    let (limits, memory) = (&adapter.limits, adapter.memory);
    json!({
        "name": adapter.name,
        "selector": adapter.selector(),
        "backend": adapter.backend,
        "kind": adapter.kind,
        "driver": adapter.driver,
        "max_buffer_bytes": limits.max_buffer,
        "max_binding_bytes": limits.max_binding,
        "max_storage_buffers": limits.max_storage_buffers,
        "max_invocations": limits.max_invocations,
        "max_workgroups": limits.max_workgroups,
        "f16": limits.f16.name(),
        "subgroup_min": adapter.subgroups.0,
        "subgroup_max": adapter.subgroups.1,
        "cooperative_side": adapter.cooperative.first().map(|c| c.side),
        "cooperative_verdict": verdict(adapter, options),
        "memory_bytes": memory.and_then(|memory| memory.total),
        "memory_budget_bytes": memory.and_then(|memory| memory.budget),
        "memory_used_bytes": memory.and_then(|memory| memory.used),
        "usable": adapter.unusable.is_none(),
        "reason": adapter.reason(),
    })
}
