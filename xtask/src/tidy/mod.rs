//! The rules of this repository, one per file. They only check and never change anything.

mod adapters;
mod api;
mod callers;
mod cycles;
mod documents;
mod edges;
mod exceptions;
mod fields;
mod imports;
mod length;
mod licences;
mod lockfile;
mod metadata;
mod methods;
mod modules;
mod names;
mod opening;
mod paths;
mod planes;
mod reach;
mod renames;
mod source;
mod stores;
mod vendors;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use exceptions::Exceptions;
use modules::Crate;
use source::Source;

/// A violation of a rule, and how to fix it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) fix: String,
}

impl Finding {
    fn new(file: &str, line: usize, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { file: file.into(), line, what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}\n    fix: {}", self.file, self.line, self.what, self.fix)
    }
}

/// Prints all findings. True: there are none.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let mut findings = Vec::new();
    let mut notes = Vec::new();
    let sources = read_sources(root)?;
    let vendors = vendors::all(&sources);
    anyhow::ensure!(!vendors.is_empty(), "no platform of a vendor was found");
    for source in &sources {
        findings.extend(opening::check(source));
        findings.extend(length::check_functions(source));
        findings.extend(names::check(source));
        findings.extend(vendors::check(source, &vendors));
        findings.extend(callers::check(source));
        findings.extend(renames::check(source));
        match length::check_file(source) {
            length::Verdict::Fine => {}
            length::Verdict::Long(lines) => {
                notes.push(format!("note {}: {lines} lines without tests", source.path));
            }
            length::Verdict::TooLong(finding) => findings.push(finding),
        }
    }
    for (path, text) in read_manifests(root)? {
        findings.extend(edges::check(&path, &text)?);
    }
    let texts = read_documents(root)?;
    for (path, text) in texts.iter().filter(|(path, _)| !path.contains('/') || path.starts_with("docs/")) {
        findings.extend(renames::check_document(path, text));
    }
    findings.extend(documents::check(&texts, |path| root.join(path).exists()));
    let exceptions = Exceptions::parse(&read(root, exceptions::FILE)?)?;
    findings.extend(check_structure(&sources, &exceptions));
    findings.extend(check_dependencies(root)?);
    findings.extend(check_api(root)?);

    findings.sort();
    notes.sort();
    for note in &notes {
        println!("{note}");
    }
    for finding in &findings {
        println!("{finding}");
    }
    println!("{}", exceptions.summary());
    println!("tidy: {} files, {} violations, {} notes", sources.len(), findings.len(), notes.len());
    Ok(findings.is_empty())
}

/// Rules that need more than one file at a time.
fn check_structure(sources: &[Source], exceptions: &Exceptions) -> Vec<Finding> {
    let crates = Crate::all(sources);
    let mut findings = imports::check(sources, &crates, exceptions);
    findings.extend(planes::check(&crates, exceptions));
    findings.extend(cycles::check(&crates, exceptions));
    findings.extend(methods::check(&crates, exceptions));
    findings.extend(reach::check(sources));
    findings.extend(stores::check(&crates));
    findings.extend(fields::check(sources, exceptions));
    findings
}

fn check_dependencies(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let lock = read(root, "Cargo.lock")?;
    findings.extend(lockfile::check_sources("Cargo.lock", &lock));
    findings.extend(lockfile::check_sources("fuzz/Cargo.lock", &read(root, "fuzz/Cargo.lock")?));
    let policy = lockfile::Policy::parse(&read(root, "deny.toml")?)?;
    let packages = metadata::ask_cargo(root)?;
    findings.extend(lockfile::check_bans(&lock, &packages, &policy));
    findings.extend(lockfile::check_licences(&lock, &packages, &policy));
    Ok(findings)
}

fn check_api(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let (main, admin) = (read(root, api::MAIN_ROUTER)?, read(root, api::ADMIN_ROUTER)?);
    let agents = read(root, api::AGENTS_ROUTER)?;
    let routers = [
        (api::MAIN_ROUTER, "", main.as_str()),
        (api::AGENTS_ROUTER, "", agents.as_str()),
        (api::ADMIN_ROUTER, "/admin/v1", admin.as_str()),
    ];
    Ok(api::check(&routers, &read(root, api::DOCUMENT)?))
}

fn read(root: &Path, path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}

fn read_sources(root: &Path) -> anyhow::Result<Vec<Source>> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "fuzz"] {
        collect(&root.join(folder), &mut files)?;
    }
    let mut sources = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "rs")) {
        let path = file.strip_prefix(root)?.to_string_lossy().into_owned();
        sources.push(Source::new(path.clone(), read(root, &path)?));
    }
    Ok(sources)
}

fn read_manifests(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut folders: Vec<PathBuf> = vec![root.join("xtask")];
    for entry in std::fs::read_dir(root.join("crates")).context("cannot list crates")? {
        folders.push(entry?.path());
    }
    folders.sort();
    let mut manifests = Vec::new();
    for manifest in folders.iter().map(|folder| folder.join("Cargo.toml")).filter(|path| path.exists()) {
        let path = manifest.strip_prefix(root)?.to_string_lossy().into_owned();
        manifests.push((path.clone(), read(root, &path)?));
    }
    Ok(manifests)
}

/// Folders with documents, besides the root.
const DOCUMENT_FOLDERS: [&str; 5] = [".github", "adapters", "clients", "deploy", "docs"];
/// Folders that tools fill.
const GENERATED: [&str; 3] = ["target", "node_modules", ".venv"];

/// The documents of the project: Markdown in its root and in these folders.
fn read_documents(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root).context("cannot list the root of the repository")? {
        files.push(entry?.path());
    }
    for folder in DOCUMENT_FOLDERS {
        collect(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut documents = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "md")) {
        let path = file.strip_prefix(root)?.to_string_lossy().into_owned();
        documents.push((path.clone(), read(root, &path)?));
    }
    Ok(documents)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.map(|it| it.path())).collect::<Result<_, _>>()?;
    paths.sort();
    for path in paths {
        if !path.is_dir() {
            files.push(path);
        } else if !GENERATED.iter().any(|name| path.ends_with(name)) {
            collect(&path, files)?;
        }
    }
    Ok(())
}
