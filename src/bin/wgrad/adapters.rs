//! `wgrad adapters`: lists the adapters.

use serde_json::json;
use wgrad::device::{Adapter, Device};
use wgrad::{Bytes, Error, Result};

#[derive(clap::Args)]
pub struct Options {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let adapters = Device::list();
    if options.json {
        let list: Vec<_> = adapters.iter().map(to_json).collect();
        println!("{}", serde_json::Value::Array(list));
        return Ok(());
    }
    if adapters.is_empty() {
        return Err(Error::NoAdapter(String::new()));
    }
    for adapter in &adapters {
        let (limits, (smallest, largest)) = (&adapter.limits, adapter.subgroups);
        println!("{}", adapter.name);
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
        let cooperative = adapter.cooperative.map_or_else(|| "none".to_owned(), |c| c.to_string());
        println!("  matrices   {cooperative}");
        println!("  {}", adapter.reason());
    }
    Ok(())
}

fn to_json(adapter: &Adapter) -> serde_json::Value {
    let limits = &adapter.limits;
    json!({
        "name": adapter.name,
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
        "cooperative_side": adapter.cooperative.map(|c| c.side),
        "usable": adapter.unusable.is_none(),
        "reason": adapter.reason(),
    })
}
