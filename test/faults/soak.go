package main

import (
	"context"
	"fmt"

	"github.com/rolewright/rolewright/test/faults/campaign"
)

// soak makes many runs with one operator.
func (d *driver) soak(ctx context.Context) {
	res, err := d.c.Run(ctx, campaign.SoakPlan("soak-"+d.o.runner, d.o.soak), "")
	d.mu.Lock()
	if err != nil {
		d.errs = append(d.errs, err)
	}
	d.soaked = append(d.soaked, fmt.Sprintf("soak of %d runs, %s runner:\n%s", res.Runs, d.o.runner, res.Report))
	d.mu.Unlock()
	if err == nil {
		d.done(res)
	}
}
