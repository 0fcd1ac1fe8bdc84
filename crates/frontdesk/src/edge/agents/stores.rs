//! Skills and data of a tenant, with the names of the contracts.

use axum::Json as Reply;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use frontdesk_wire::agents::{
    Class, DataItems, DataStore as _, DataWrite, DataWritten, Fault, ManifestInfo, QueryFilters, SkillFilter,
    SkillList, SkillPut, SkillStore as _, SkillVersions, StatusPost, StoreVersion, VersionInfo,
};
use serde::Deserialize;

use super::auth::Api;
use super::body::Json;
use super::{Answer, Refused, answer};
use crate::edge::App;
use crate::edge::answers::{ROW_KIB, ROWS_KIB};

#[derive(Deserialize)]
pub(crate) struct Which {
    version: Option<String>,
}

pub(crate) async fn load(
    State(app): State<App>,
    who: Api,
    Path(name): Path<String>,
    Query(which): Query<Which>,
) -> Result<Response, Refused> {
    let skills = app.desk.tenant_stores().skills(who.as_caller());
    answer(&app, &who, ROW_KIB, skills.load(&name, which.version.as_deref())).await
}

pub(crate) async fn metadata(State(app): State<App>, who: Api, Path(name): Path<String>) -> Result<Response, Refused> {
    let skills = app.desk.tenant_stores().skills(who.as_caller());
    answer(&app, &who, ROW_KIB, skills.metadata(&name)).await
}

pub(crate) async fn versions(State(app): State<App>, who: Api, Path(name): Path<String>) -> Result<Response, Refused> {
    let skills = app.desk.tenant_stores().skills(who.as_caller());
    answer(&app, &who, ROW_KIB, async { Ok(SkillVersions { versions: skills.versions(&name).await? }) }).await
}

pub(crate) async fn store(
    State(app): State<App>,
    who: Api,
    Path(name): Path<String>,
    Json(put): Json<SkillPut>,
) -> Answer<VersionInfo> {
    let note = put.metadata.unwrap_or_default();
    let skills = app.desk.tenant_stores().skills(who.as_caller());
    Ok(Reply(skills.store(&name, &put.source, &note).await?))
}

pub(crate) async fn restatus(
    State(app): State<App>,
    who: Api,
    Path(name): Path<String>,
    Json(post): Json<StatusPost>,
) -> Answer<VersionInfo> {
    let skills = app.desk.tenant_stores().skills(who.as_caller());
    Ok(Reply(skills.update_status(&name, post.status).await?))
}

pub(crate) async fn delete(State(app): State<App>, who: Api, Path(name): Path<String>) -> Result<StatusCode, Refused> {
    app.desk.tenant_stores().skills(who.as_caller()).delete(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn query_skills(
    State(app): State<App>,
    who: Api,
    Json(filter): Json<SkillFilter>,
) -> Result<Response, Refused> {
    let skills = app.desk.tenant_stores().skills(who.as_caller());
    answer(&app, &who, ROWS_KIB, async { Ok(SkillList { skills: skills.query(&filter).await? }) }).await
}

pub(crate) async fn store_version(State(app): State<App>, who: Api) -> Answer<StoreVersion> {
    Ok(Reply(StoreVersion { version: app.desk.tenant_stores().skills(who.as_caller()).version().await? }))
}

pub(crate) async fn skills_manifest(State(app): State<App>, who: Api) -> Answer<ManifestInfo> {
    Ok(Reply(app.desk.tenant_stores().skills(who.as_caller()).manifest().await?))
}

pub(crate) async fn write(
    State(app): State<App>,
    who: Api,
    Json(entry): Json<DataWrite>,
) -> Result<(StatusCode, Reply<DataWritten>), Refused> {
    let written = app.desk.tenant_stores().data(who.as_caller()).write(&entry).await?;
    Ok((StatusCode::CREATED, Reply(written)))
}

/// A missing row has its own class, which adapters convert to null.
pub(crate) async fn get(State(app): State<App>, who: Api, Path(id): Path<String>) -> Result<Response, Refused> {
    let data = app.desk.tenant_stores().data(who.as_caller());
    let found = async {
        let absent = || Fault::new(Class::DataNotFound, "row not found").with("id", id.as_str());
        data.get(&id).await?.ok_or_else(absent)
    };
    answer(&app, &who, ROW_KIB, found).await
}

pub(crate) async fn query_data(
    State(app): State<App>,
    who: Api,
    Json(filters): Json<QueryFilters>,
) -> Result<Response, Refused> {
    let data = app.desk.tenant_stores().data(who.as_caller());
    answer(&app, &who, ROWS_KIB, async { Ok(DataItems { items: data.query(&filters).await? }) }).await
}

pub(crate) async fn data_manifest(State(app): State<App>, who: Api) -> Answer<ManifestInfo> {
    Ok(Reply(app.desk.tenant_stores().data(who.as_caller()).manifest().await?))
}
