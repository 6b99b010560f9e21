// Command otelcol is the OpenTelemetry collector, with its receiver for OTLP and an exporter
// that writes the traces it gets to standard output, one line of JSON for each batch, for tests.
package main

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

func main() {
	received, stdout := otlpreceiver.NewFactory(), newStdout()
	command := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "otelcol", Version: "test"},
		Factories: func() (otelcol.Factories, error) {
			return otelcol.Factories{
				Receivers: map[component.Type]receiver.Factory{received.Type(): received},
				Exporters: map[component.Type]exporter.Factory{stdout.Type(): stdout},
				Telemetry: otelconftelemetry.NewFactory(),
			}, nil
		},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()}, DefaultScheme: "yaml",
		}},
	})
	if err := command.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "otelcol:", err)
		os.Exit(1)
	}
}

// newStdout makes the exporter "stdout".
func newStdout() exporter.Factory {
	create := func(ctx context.Context, set exporter.Settings, config component.Config) (exporter.Traces, error) {
		return exporterhelper.NewTraces(ctx, set, config, func(_ context.Context, traces ptrace.Traces) error {
			line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
			if err == nil {
				_, err = fmt.Printf("%s\n", line)
			}
			return err
		})
	}
	config := func() component.Config { return &struct{}{} }
	return exporter.NewFactory(component.MustNewType("stdout"), config, exporter.WithTraces(create, component.StabilityLevelStable))
}
