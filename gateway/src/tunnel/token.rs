//! Which tokens are valid: a snapshot made from the configuration.
//!
//! Looked up by the id part, compared in constant time by the hash; says that a token expired only
//! to whoever holds its secret.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bridgehead_protocol::handshake::{Denied, Grant, Scope, Token, TokenHash, TokenVerifier};

use crate::config::AgentEntry;

#[derive(Clone)]
struct Key {
    subject: String,
    hash: TokenHash,
    scope: Scope,
    expires: Option<SystemTime>,
}

impl Key {
    fn is_valid(&self, now: SystemTime) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

/// All tokens of a configuration.
#[derive(Default)]
pub struct Tokens {
    /// Looked up; iterated only where the order means nothing.
    keys: HashMap<String, Key>,
    /// Revoked by the operator; not valid again before the next start.
    revoked: Vec<(String, TokenHash)>,
}

impl Tokens {
    /// The tokens of `agents`. Key ids are unique; the configuration has seen to that.
    #[must_use]
    pub fn new(agents: &[AgentEntry]) -> Self {
        let keys = agents.iter().flat_map(|agent| {
            agent.keys.iter().map(|key| {
                let expires = key
                    .expires
                    .map(|second| UNIX_EPOCH + Duration::from_secs(second));
                let scope = Scope::new(agent.apps.clone());
                let entry = Key {
                    subject: agent.id.clone(),
                    hash: key.hash,
                    scope,
                    expires,
                };
                (key.id.clone(), entry)
            })
        });
        Self {
            keys: keys.collect(),
            revoked: Vec::new(),
        }
    }

    /// The tokens of a newer configuration. What the operator has revoked since the start stays so;
    /// a new key of the same agent is valid.
    #[must_use]
    pub fn replaced(&self, agents: &[AgentEntry]) -> Self {
        let mut next = Self::new(agents);
        for (id, hash) in &self.revoked {
            if let Some(key) = next.keys.get(id)
                && key.hash.value() == hash.value()
            {
                next.keys.remove(id);
            }
        }
        next.revoked.clone_from(&self.revoked);
        next
    }

    /// What a tunnel that joined with this key may offer now; nothing if the key is gone or has
    /// expired.
    #[must_use]
    pub fn scope_of(&self, key: &str, subject: &str, now: SystemTime) -> Option<&Scope> {
        let key = self.keys.get(key).filter(|key| key.is_valid(now))?;
        (key.subject == subject).then_some(&key.scope)
    }

    /// These tokens without those of one agent; nothing if it has none. The configuration is not
    /// changed: what is revoked here is valid again after a restart, unless it is taken out there.
    #[must_use]
    pub fn without(&self, subject: &str) -> Option<Self> {
        self.knows(subject).then(|| {
            let mut revoked = self.revoked.clone();
            let mut keys = self.keys.clone();
            keys.retain(|id, key| {
                let stays = key.subject != subject;
                if !stays {
                    revoked.push((id.clone(), key.hash));
                }
                stays
            });
            Self { keys, revoked }
        })
    }

    /// True if any token of this agent is listed.
    #[must_use]
    pub fn knows(&self, subject: &str) -> bool {
        self.keys.values().any(|key| key.subject == subject)
    }

    fn verify_at(&self, token: &Token, now: SystemTime) -> Result<Grant, Denied> {
        let key = self.keys.get(token.key_id()).ok_or(Denied::Unknown)?;
        if !key.hash.matches(token) {
            return Err(Denied::Unknown);
        }
        if !key.is_valid(now) {
            return Err(Denied::Expired);
        }
        Ok(Grant {
            subject: key.subject.clone(),
            scope: key.scope.clone(),
        })
    }
}

impl TokenVerifier for Tokens {
    fn verify(&self, token: &Token) -> Result<Grant, Denied> {
        self.verify_at(token, SystemTime::now())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::{AgentKey, AppPattern};

    fn tokens(token: &Token, expires: Option<u64>) -> Tokens {
        Tokens::new(&[AgentEntry {
            id: "edge-1".into(),
            keys: vec![AgentKey {
                id: token.key_id().into(),
                hash: token.hash(),
                expires,
            }],
            apps: vec![AppPattern::parse("shop-*").unwrap()],
        }])
    }

    #[test]
    fn without_an_agent_its_tokens_are_unknown_and_others_stay() {
        let (mine, other) = (
            Token::generate("k1", &[7; 32]).unwrap(),
            Token::generate("k2", &[8; 32]).unwrap(),
        );
        let entry = |id: &str, token: &Token| AgentEntry {
            id: id.into(),
            keys: vec![AgentKey {
                id: token.key_id().into(),
                hash: token.hash(),
                expires: None,
            }],
            apps: vec![AppPattern::parse("*").unwrap()],
        };
        let tokens = Tokens::new(&[entry("edge-1", &mine), entry("edge-2", &other)]);
        let left = tokens.without("edge-1").unwrap();
        assert_eq!(left.verify(&mine).err(), Some(Denied::Unknown));
        assert_eq!(left.verify(&other).unwrap().subject, "edge-2");
        assert!(!left.knows("edge-1") && left.without("edge-1").is_none());
    }

    #[test]
    fn what_was_revoked_stays_so_in_a_newer_configuration_and_a_new_key_is_valid() {
        let (old, new) = (
            Token::generate("k1", &[7; 32]).unwrap(),
            Token::generate("k2", &[8; 32]).unwrap(),
        );
        let key = |token: &Token| AgentKey {
            id: token.key_id().into(),
            hash: token.hash(),
            expires: None,
        };
        let entry = |keys| {
            [AgentEntry {
                id: "edge-1".into(),
                keys,
                apps: vec![AppPattern::parse("*").unwrap()],
            }]
        };
        let tokens = Tokens::new(&entry(vec![key(&old)]));
        let revoked = tokens.without("edge-1").unwrap();
        let next = revoked.replaced(&entry(vec![key(&old), key(&new)]));
        assert_eq!(next.verify(&old).err(), Some(Denied::Unknown));
        assert!(next.verify(&new).is_ok());
        let known = |key, subject| next.scope_of(key, subject, UNIX_EPOCH).is_some();
        assert!(known("k2", "edge-1") && !known("k1", "edge-1") && !known("k2", "other"));
    }

    #[test]
    fn a_valid_token_speaks_for_its_agent_within_its_scope() {
        let token = Token::generate("k1", &[7; 32]).unwrap();
        let grant = tokens(&token, None).verify_at(&token, UNIX_EPOCH).unwrap();
        assert_eq!(grant.subject, "edge-1");
        assert!(grant.scope.covers("shop-1") && !grant.scope.covers("demo"));
    }

    #[test]
    fn a_wrong_secret_and_an_unknown_key_are_not_told_apart() {
        let (token, other) = (
            Token::generate("k1", &[7; 32]).unwrap(),
            Token::generate("k1", &[8; 32]).unwrap(),
        );
        let unknown = Token::generate("k2", &[7; 32]).unwrap();
        let tokens = tokens(&token, Some(0));
        assert_eq!(
            tokens.verify_at(&other, UNIX_EPOCH).unwrap_err(),
            Denied::Unknown
        );
        assert_eq!(
            tokens.verify_at(&unknown, UNIX_EPOCH).unwrap_err(),
            Denied::Unknown
        );
    }

    #[test]
    fn a_token_is_refused_from_its_expiry_on() {
        let token = Token::generate("k1", &[7; 32]).unwrap();
        let tokens = tokens(&token, Some(100));
        let at = |second| tokens.verify_at(&token, UNIX_EPOCH + Duration::from_secs(second));
        assert!(at(99).is_ok());
        assert_eq!(at(100).unwrap_err(), Denied::Expired);
        let scope =
            |second| tokens.scope_of("k1", "edge-1", UNIX_EPOCH + Duration::from_secs(second));
        assert!(
            scope(99).is_some() && scope(100).is_none(),
            "for a tunnel that stands too"
        );
    }
}
