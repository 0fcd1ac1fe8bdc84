//! Packages that are built for this machine, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

/// One package of the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) licence: Option<String>,
    /// False: it is only in the lock file, because of an optional feature that is not enabled.
    pub(super) is_built: bool,
}

/// Runs `cargo metadata` for the host only, because packages of other platforms would have to be downloaded.
pub(super) fn ask_cargo(root: &Path) -> anyhow::Result<Vec<Package>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let host = output(Command::new("rustc").arg("-vV").current_dir(root))?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc does not name its host")?;
    let asked = ["metadata", "--locked", "--format-version", "1", "--filter-platform", host];
    read(&output(Command::new(cargo).args(asked).current_dir(root))?)
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let done = command.output().with_context(|| format!("cannot run {command:?}"))?;
    anyhow::ensure!(done.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?)
}

pub(super) fn read(text: &str) -> anyhow::Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(text).context("cargo metadata is not JSON")?;
    let packages: BTreeMap<&str, &Value> = by_id(&metadata["packages"]);
    let nodes: BTreeMap<&str, &Value> = by_id(&metadata["resolve"]["nodes"]);
    let mut built = BTreeSet::new();
    let mut open: Vec<&str> = texts(&metadata["workspace_members"]).collect();
    while let Some(id) = open.pop() {
        if let (true, Some(package), Some(node)) = (built.insert(id), packages.get(id), nodes.get(id)) {
            let wanted = list(&node["deps"]).filter_map(|edge| edge["pkg"].as_str());
            let name = |id: &str| packages.get(id).and_then(|it| it["name"].as_str()).unwrap_or_default();
            open.extend(wanted.filter(|id| is_wanted(package, node, name(id))));
        }
    }
    let field = |package: &Value, name: &str| package[name].as_str().map(str::to_owned);
    let read = |(id, package): (&str, &Value)| Package {
        name: field(package, "name").unwrap_or_default(),
        version: field(package, "version").unwrap_or_default(),
        licence: field(package, "license"),
        is_built: built.contains(id),
    };
    Ok(packages.into_iter().map(read).collect())
}

/// Cargo also lists optional dependencies that only a weak feature (`ring?/alloc`) mentions. They are not built.
fn is_wanted(package: &Value, node: &Value, name: &str) -> bool {
    let active: BTreeSet<&str> = texts(&node["features"]).collect();
    let mut declared = list(&package["dependencies"]).filter(|it| it["name"].as_str() == Some(name));
    declared.any(|dependency| {
        let local = dependency["rename"].as_str().unwrap_or(name);
        let turns_on = |entry: &str| entry == format!("dep:{local}") || entry.starts_with(&format!("{local}/"));
        dependency["optional"] != Value::Bool(true)
            || active.contains(local)
            || active.iter().any(|feature| texts(&package["features"][feature]).any(turns_on))
    })
}

fn by_id(value: &Value) -> BTreeMap<&str, &Value> {
    list(value).filter_map(|it| Some((it["id"].as_str()?, it))).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    list(value).filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_only_a_weak_feature_mentions_is_not_built() {
        let with = |features: &str| {
            let text = format!(
                r#"{{"packages":[
                    {{"id":"a 1","name":"a","version":"1","license":"MIT","features":{{}},"dependencies":[{{"name":"b","optional":false}}]}},
                    {{"id":"b 1","name":"b","version":"1","license":null,"features":{{"alloc":["c?/alloc"],"full":["dep:c"],"more":["c/std"],"c":["dep:c"]}},
                      "dependencies":[{{"name":"c","optional":true}}]}},
                    {{"id":"c 1","name":"c","version":"1","license":"ISC","features":{{}},"dependencies":[]}}],
                  "workspace_members":["a 1"],
                  "resolve":{{"nodes":[
                    {{"id":"a 1","features":[],"deps":[{{"pkg":"b 1"}}]}},
                    {{"id":"b 1","features":[{features}],"deps":[{{"pkg":"c 1"}}]}},
                    {{"id":"c 1","features":[],"deps":[]}}]}}}}"#
            );
            read(&text).unwrap()
        };
        let of_b = with(r#""alloc""#);
        assert_eq!(
            of_b.iter().map(|it| (it.name.as_str(), it.is_built)).collect::<Vec<_>>(),
            [("a", true), ("b", true), ("c", false)]
        );
        assert_eq!((of_b[0].licence.as_deref(), of_b[1].licence.as_deref()), (Some("MIT"), None));
        for features in [r#""full""#, r#""more""#, r#""c""#] {
            assert!(with(features)[2].is_built, "{features}");
        }
        assert!(read("{").is_err());
    }
}
