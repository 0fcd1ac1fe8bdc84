//! Interrupts that the gateway asks for.

use super::{Effect, Session};
use crate::delivery::interrupt::InterruptRequest;
use crate::meters::Why;

/// Interrupts that wait while one is looked up; further ones are dropped and counted.
const INTERRUPTS_MAX: usize = 16;

impl Session {
    /// One interrupt is looked up at a time, some wait, and further ones are dropped.
    pub(super) fn take_interrupt(&mut self, asked: InterruptRequest) {
        match self.interrupts.len() {
            0 => self.start_interrupt(asked.clone()),
            1..=INTERRUPTS_MAX => {}
            _ => {
                self.delivery.meters.frames_bad.get_or_create(&Why { why: "interrupt_flood" }).inc();
                return;
            }
        }
        self.interrupts.push_back(asked);
    }

    pub(super) fn start_interrupt(&mut self, asked: InterruptRequest) {
        if let Some(mailbox) = self.mailbox().cloned() {
            self.effects.push_back(Effect::Interrupt { asked, mailbox });
        }
    }
}
