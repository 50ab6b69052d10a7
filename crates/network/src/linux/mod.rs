//! The real driver: namespaces, a veth pair, nft rules.
