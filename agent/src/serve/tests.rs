//! The copy loop against scripted apps and a gateway made of the core alone: order, evidence, ends.
