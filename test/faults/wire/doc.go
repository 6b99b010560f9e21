// Package wire is a proxy between the operator and the API server that carries out the rules of a fault plan and records
// what went through it.
//
// It is no proxy for production. Each replica of the operator has a listener of its own on the loopback, without TLS or
// credentials, by which its requests are told apart; anyone who can reach it has the rights of the upstream's credentials.
//
// Answers are asked for in JSON, whatever the client prefers, so that objects and events can be read: clients take what they
// get. What has come as it is goes as it is, byte for byte. Events are read and written again one by one.
//
// What a rule means says package plan.
package wire
