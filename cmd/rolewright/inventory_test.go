package main

import (
	"bytes"
	"testing"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/test/must"
)

// A name in the inventory takes one line, and cannot control the terminal.
func TestInventory_NamesInALine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	must.Do(t, (&table{out: &out}).print(inventoryRows([]controller.Item{{Found: controller.Found{Kind: "Pod", Name: "a\x1b[2J\nb", Status: "Current"}}}, false)...))
	must.Be(t, "inventory", "KIND   NAMESPACE   NAME   STATUS\nPod    -           a b    Current\n", out.String())
}
