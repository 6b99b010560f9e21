package main

import "context"

func (d *driver) soak(context.Context) {}
