//! Skills.
use super::MemoryStore;
use frontdesk_core::port::skills::{SkillQuery, SkillWrite, Skills};
use frontdesk_core::port::store::Stored;
use frontdesk_wire::agents::{SkillMeta, SkillSource, VersionInfo};
impl Skills for MemoryStore {
    fn skill_put(&self, _: SkillWrite) -> Stored<'_, ()> {
        unimplemented!()
    }
    fn skill<'a>(&'a self, _: &'a str, _: &'a str, _: Option<&'a str>) -> Stored<'a, Option<SkillSource>> {
        unimplemented!()
    }
    fn skill_meta<'a>(&'a self, _: &'a str, _: &'a str) -> Stored<'a, Option<SkillMeta>> {
        unimplemented!()
    }
    fn skill_versions<'a>(&'a self, _: &'a str, _: &'a str) -> Stored<'a, Vec<VersionInfo>> {
        unimplemented!()
    }
    fn skill_query<'a>(&'a self, _: &'a str, _: SkillQuery) -> Stored<'a, Vec<SkillMeta>> {
        unimplemented!()
    }
    fn skill_delete<'a>(&'a self, _: &'a str, _: &'a str) -> Stored<'a, bool> {
        unimplemented!()
    }
    fn skill_token<'a>(&'a self, _: &'a str) -> Stored<'a, String> {
        unimplemented!()
    }
}
