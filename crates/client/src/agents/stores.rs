//! Skills and data of a server. A missing skill is a fault, missing data are `None`, as the contracts require.

use frontdesk_wire::agents::{
    Class, DataItems, DataStore, DataWrite, DataWritten, Fault, ManifestInfo, PortableData, Promise, QueryFilters,
    SkillFilter, SkillList, SkillMeta, SkillNote, SkillPut, SkillSource, SkillStatus, SkillStore, SkillVersions,
    StatusPost, StoreVersion, VersionInfo,
};
use reqwest::Method;

use super::http::{AgentsClient, encoded, segment};

/// A name that is not a valid path segment cannot exist.
fn skill_path(name: &str, rest: &str) -> Result<String, Fault> {
    let name = segment(name).map_err(|_| Fault::skill_not_found(name))?;
    Ok(format!("skills/{name}{rest}"))
}

impl SkillStore for AgentsClient {
    fn load<'a>(&'a self, name: &'a str, version: Option<&'a str>) -> Promise<'a, SkillSource> {
        Box::pin(async move {
            let version = version.map(|version| format!("?version={}", encoded(version))).unwrap_or_default();
            self.get(&skill_path(name, &version)?).await
        })
    }

    fn query<'a>(&'a self, filter: &'a SkillFilter) -> Promise<'a, Vec<SkillMeta>> {
        Box::pin(async move { Ok(self.post::<SkillList>("skill-store/query", filter).await?.skills) })
    }

    fn metadata<'a>(&'a self, name: &'a str) -> Promise<'a, SkillMeta> {
        Box::pin(async move { self.get(&skill_path(name, "/metadata")?).await })
    }

    fn versions<'a>(&'a self, name: &'a str) -> Promise<'a, Vec<VersionInfo>> {
        Box::pin(async move { Ok(self.get::<SkillVersions>(&skill_path(name, "/versions")?).await?.versions) })
    }

    fn store<'a>(&'a self, name: &'a str, source: &'a str, note: &'a SkillNote) -> Promise<'a, VersionInfo> {
        Box::pin(async move {
            let metadata = (*note != SkillNote::default()).then(|| note.clone());
            let put = SkillPut { source: source.into(), metadata };
            self.ask(self.request(Method::PUT, &format!("skills/{}", segment(name)?)).json(&put)).await
        })
    }

    fn delete<'a>(&'a self, name: &'a str) -> Promise<'a, ()> {
        Box::pin(async move { self.send(self.request(Method::DELETE, &skill_path(name, "")?)).await })
    }

    fn update_status<'a>(&'a self, name: &'a str, status: SkillStatus) -> Promise<'a, VersionInfo> {
        Box::pin(async move { self.post(&skill_path(name, "/status")?, &StatusPost { status }).await })
    }

    fn manifest(&self) -> Promise<'_, ManifestInfo> {
        Box::pin(async { self.get("skill-store/manifest").await })
    }

    fn version(&self) -> Promise<'_, String> {
        Box::pin(async { Ok(self.get::<StoreVersion>("skill-store/version").await?.version) })
    }
}

impl DataStore for AgentsClient {
    fn query<'a>(&'a self, filters: &'a QueryFilters) -> Promise<'a, Vec<PortableData>> {
        Box::pin(async move { Ok(self.post::<DataItems>("data-store/query", filters).await?.items) })
    }

    fn write<'a>(&'a self, entry: &'a DataWrite) -> Promise<'a, DataWritten> {
        Box::pin(async move { self.post("data", entry).await })
    }

    fn get<'a>(&'a self, id: &'a str) -> Promise<'a, Option<PortableData>> {
        Box::pin(async move {
            let Ok(id) = segment(id) else { return Ok(None) }; // ids are made by the server and valid path segments
            // Other 404s (unknown tenant or route) do not mean that the data do not exist.
            match Self::get(self, &format!("data/{id}")).await {
                Ok(found) => Ok(Some(found)),
                Err(fault) if fault.class == Class::DataNotFound => Ok(None),
                Err(fault) => Err(fault),
            }
        })
    }

    fn manifest(&self) -> Promise<'_, ManifestInfo> {
        Box::pin(async { self.get("data-store/manifest").await })
    }
}
