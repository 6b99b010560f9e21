package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestDebugWindow_OpensAndCloses(t *testing.T) {
	var o zap.Options
	window := newDebugWindow(&o)
	var out bytes.Buffer
	log := zap.New(zap.UseFlagOptions(&o), zap.WriteTo(zapcore.Lock(zapcore.AddSync(&out))))
	ctx, stop := context.WithCancel(logr.NewContext(t.Context(), log))
	var serving sync.WaitGroup
	serving.Go(func() { _ = window.serve(ctx) })
	await := func(open bool) {
		t.Helper()
		testenv.Eventually(t, "debug messages are switched", func(context.Context) error {
			if log.V(1).Enabled() != open {
				return errors.New("not yet")
			}
			return nil
		})
	}
	log.V(1).Info("before")
	must.Do(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	await(true)
	log.V(1).Info("while open")
	must.Do(t, syscall.Kill(os.Getpid(), syscall.SIGUSR2))
	await(false)
	log.V(1).Info("after")
	stop()
	serving.Wait()
	if said := out.String(); !strings.Contains(said, "while open") || strings.Contains(said, "before") || strings.Contains(said, "after") {
		t.Errorf("the log has\n%s", said)
	}
}
