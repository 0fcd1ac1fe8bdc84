//! Puts the planes together. Has no rules of its own.

use std::sync::Arc;

use crate::agents::{AgentsPlane, Exchanges, Inboxes, Messages, TenantStores, Ways};
use crate::base::Base;
use crate::cluster::{ClusterPlane, Planes};
use crate::cron::{CronPlane, PlannedWakes};
use crate::delivery::DeliveryPlane;
use crate::directory::{DirectoryPlane, Management, ProvenInstance};
use crate::env::Env;
use crate::error::DeskError;
use crate::inbound::{Explanations, InboundPlane};
use crate::lease::Lease;
use crate::media::MediaPlane;
use crate::meters::Meters;
use crate::outbound::OutboundPlane;
use crate::port::bus::{Bus, NoBus};
use crate::port::connectors::{Connectors, NoConnectors};
use crate::port::outcall::Outcall;
use crate::port::platform::{Platform, Platforms};
use crate::port::store::StoreError;
use crate::port::stores::Stores;
use crate::rules::Rules;
use crate::tail::Tail;
use crate::upkeep::UpkeepPlane;
use crate::vault::Sealer;

pub struct Desk {
    base: Base,
    directory: Arc<DirectoryPlane>,
    management: Arc<Management>,
    delivery: Arc<DeliveryPlane>,
    inbound: Arc<InboundPlane>,
    explanations: Explanations,
    outbound: Arc<OutboundPlane>,
    cron: Arc<CronPlane>,
    agents: Arc<AgentsPlane>,
    messages: Arc<Messages>,
    inboxes: Arc<Inboxes>,
    exchanges: Arc<Exchanges>,
    tenant_stores: Arc<TenantStores>,
    media: MediaPlane,
    upkeep: UpkeepPlane,
    cluster: ClusterPlane,
    stores: Stores,
    platforms: Arc<Platforms>,
    outcall: Arc<dyn Outcall>,
}

/// What a server is made of, besides its stores.
pub struct Parts {
    pub env: Arc<dyn Env>,
    pub sealer: Sealer,
    pub outcall: Arc<dyn Outcall>,
    pub platforms: Vec<Arc<dyn Platform>>,
    /// Ways to reach agents besides their inboxes and sockets.
    pub connectors: Arc<dyn Connectors>,
    /// To the other servers on the same store.
    pub bus: Arc<dyn Bus>,
    pub rules: Rules,
}

impl Parts {
    /// With no platform and no connector.
    pub fn new(env: Arc<dyn Env>, sealer: Sealer, outcall: Arc<dyn Outcall>, rules: Rules) -> Self {
        Self {
            env,
            sealer,
            outcall,
            platforms: Vec::new(),
            connectors: Arc::new(NoConnectors),
            bus: Arc::new(NoBus),
            rules,
        }
    }
}

impl Desk {
    pub async fn open(stores: impl Into<Stores>, parts: Parts) -> Result<Self, StoreError> {
        let stores = stores.into();
        let Parts { env, sealer, outcall, platforms, connectors, bus, rules } = parts;
        let base = Base::open(env, rules, stores.desks.clone(), bus).await?;
        let (sealer, platforms) = (Arc::new(sealer), Arc::new(Platforms::new(platforms)));

        let directory = DirectoryPlane::open(&base, &stores, &sealer, &outcall, &platforms).await?;
        let directory = Arc::new(directory);
        let management = Arc::new(Management::new(&base, &stores, &directory, &sealer, &platforms));
        let delivery = Arc::new(DeliveryPlane::open(&base, &stores, &directory, &platforms, &outcall).await?);
        let inbound = InboundPlane::new(&base, &stores, &directory, &management, &delivery, &sealer, &platforms);
        let inbound = Arc::new(inbound);
        let explanations = Explanations::new(&stores);
        let outbound = OutboundPlane::open(&base, &stores, &directory, &delivery, &sealer, &platforms).await?;
        let outbound = Arc::new(outbound);
        let cron = Arc::new(CronPlane::open(&base, &stores, &directory, &sealer, &outcall).await?);
        let media = MediaPlane::new(&base, &stores, &directory, &sealer, &platforms);
        let ways = Ways { sealer, outcall: outcall.clone(), connectors };
        let agents = Arc::new(AgentsPlane::open(&base, &stores, &directory, &delivery, &cron, ways).await?);
        let messages = Arc::new(Messages::new(&base, &stores, &agents, &platforms));
        let inboxes = Arc::new(Inboxes::new(&base, &stores, &agents));
        let exchanges = Arc::new(Exchanges::new(&base, &stores, &agents, &messages, &inboxes));
        let tenant_stores = Arc::new(TenantStores::new(&base, &stores, &directory));
        let upkeep = UpkeepPlane::new(&stores);
        let cluster = ClusterPlane::new(
            &base,
            Planes {
                directory: directory.clone(),
                delivery: delivery.clone(),
                agents: agents.clone(),
                exchanges: exchanges.clone(),
                outbound: outbound.clone(),
                cron: cron.clone(),
                platforms: platforms.clone(),
            },
        );

        outbound.listen(exchanges.clone());
        let wakes: Arc<dyn PlannedWakes> = messages.clone();
        cron.fire_wakes_by(Arc::downgrade(&wakes));
        let (sockets, streams, keys) = (Arc::downgrade(&delivery), Arc::downgrade(&agents), Arc::downgrade(&cron));
        let bots = Arc::downgrade(&directory);
        directory.on_effect(move |effect| {
            if let Some(directory) = bots.upgrade() {
                directory.bots().apply(effect);
            }
            if let Some(delivery) = sockets.upgrade() {
                delivery.apply(effect);
            }
            if let Some(agents) = streams.upgrade() {
                agents.apply(effect);
            }
            if let Some(cron) = keys.upgrade() {
                cron.apply(effect);
            }
        });
        Ok(Self {
            base,
            directory,
            management,
            delivery,
            inbound,
            explanations,
            outbound,
            cron,
            agents,
            messages,
            inboxes,
            exchanges,
            tenant_stores,
            media,
            upkeep,
            cluster,
            stores,
            platforms,
            outcall,
        })
    }

    pub fn env(&self) -> &dyn Env {
        &*self.base.env
    }

    pub fn rules(&self) -> &Rules {
        &self.base.rules
    }

    /// This server among those that share its store.
    pub fn lease(&self) -> &Lease {
        &self.base.lease
    }

    pub fn directory(&self) -> &DirectoryPlane {
        &self.directory
    }

    pub fn management(&self) -> &Management {
        &self.management
    }

    pub fn delivery(&self) -> &Arc<DeliveryPlane> {
        &self.delivery
    }

    pub fn inbound(&self) -> &Arc<InboundPlane> {
        &self.inbound
    }

    pub fn explanations(&self) -> &Explanations {
        &self.explanations
    }

    pub fn outbound(&self) -> &OutboundPlane {
        &self.outbound
    }

    pub fn cron(&self) -> &CronPlane {
        &self.cron
    }

    pub fn agents(&self) -> &AgentsPlane {
        &self.agents
    }

    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    pub fn inboxes(&self) -> &Inboxes {
        &self.inboxes
    }

    pub fn exchanges(&self) -> &Exchanges {
        &self.exchanges
    }

    pub fn tenant_stores(&self) -> &Arc<TenantStores> {
        &self.tenant_stores
    }

    pub fn media(&self) -> &MediaPlane {
        &self.media
    }

    pub fn upkeep(&self) -> &UpkeepPlane {
        &self.upkeep
    }

    /// This server and the others that share its store.
    pub fn cluster(&self) -> &ClusterPlane {
        &self.cluster
    }

    /// The stores behind the planes, for tests and benchmarks that compare memory with them. The edge does not use it.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    pub fn platforms(&self) -> &Platforms {
        &self.platforms
    }

    pub fn outcall(&self) -> &dyn Outcall {
        &*self.outcall
    }

    pub fn tail(&self) -> &Tail {
        &self.base.tail
    }

    pub fn meters(&self) -> &Meters {
        &self.base.meters
    }

    /// Removes an instance, and cancels its alarms.
    pub async fn deprovision(&self, who: &ProvenInstance) -> Result<(), DeskError> {
        self.management.deprovision(who).await?;
        self.cron.owner_removed(&who.tenant, who.instance.no).await;
        Ok(())
    }
}
