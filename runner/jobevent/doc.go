// Package jobevent reads the job events of ansible-runner: one JSON file per
// event in the run's artifacts directory. It decodes them with bounded memory
// ([Decode]), follows a directory in counter order while it is being written
// ([Follow]), and adds the events up to what a verdict needs ([Summary]).
//
// It judges nothing, starts nothing, and knows neither runs nor Kubernetes.
package jobevent
