package watches

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"gopkg.in/yaml.v3"
)

// JobContainer is the name of the run's container in a Pod template.
const JobContainer = "run"

// PodTemplate parses a Pod template in JSON; empty data gives an empty template. The error says what is wrong.
func PodTemplate(data []byte) (t corev1.PodTemplateSpec, err error) {
	if len(data) == 0 {
		return t, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&t); err != nil {
		return t, fmt.Errorf("not a Pod template: %w", err)
	}
	for _, c := range t.Spec.Containers {
		if c.Name != JobContainer || len(t.Spec.Containers) > 1 {
			return t, fmt.Errorf("container %q: only one container is allowed, named %q; make others init containers with restartPolicy: Always", excerpt(c.Name), JobContainer)
		}
		if len(c.Command)+len(c.Args) > 0 {
			return t, fmt.Errorf("container %q has command or args, which the operator sets", c.Name)
		}
	}
	return t, nil
}

// setJob reads the Pod template of a watch.
func setJob(c *decoding, e *entry, a at) {
	if a.node.Kind != yaml.MappingNode {
		c.mismatch(a, typeMap)
		return
	}
	v, ok := c.value(a)
	if !ok {
		return
	}
	data, err := json.Marshal(v)
	if err == nil {
		_, err = PodTemplate(data)
	}
	if err != nil {
		c.error(a, err.Error(), "write metadata and spec as in a Pod, with no container other than "+JobContainer)
		return
	}
	e.watch.Job = data
}
