// Package wire is a proxy between the operator and the API server that carries out the rules of a fault plan and records
// what went through it.
//
// It is no proxy for production. Each replica of the operator has its own listener on the loopback address, without TLS or
// credentials, which tells its requests apart. Anyone who can reach it has the rights of the upstream's credentials.
//
// The proxy asks for answers in JSON, whatever the client prefers, so that it can read objects and events; clients accept
// that. It forwards everything that a rule does not change byte for byte. It reads and rewrites events one by one.
//
// Package plan says what a rule means.
package wire
