package polyrail_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	tracing "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	. "github.com/polyrail/polyrail"
)

// attributes of a span by key.
func attributes(s tracing.ReadOnlySpan) map[string]any {
	all := make(map[string]any)
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

func TestOperationsHaveSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := tracing.NewTracerProvider(tracing.WithSpanProcessor(recorder))
	inBed(t, 3, 2, func(c *Config) {
		if c.Name == "node0" {
			c.Spans = provider
		}
	}, func(b *bed) {
		comms := b.form("train")
		if n := len(recorder.Ended()); n != 0 {
			t.Fatalf("%d spans of operations that nobody called", n)
		}
		step, parent := provider.Tracer("test").Start(b.t.Context(), "step")
		b.each(func(i int) error {
			return AllReduce(step, comms[i], make([]float32, 1<<20), Sum, WithName("grad"))
		})
		b.each(func(i int) error { return comms[i].Barrier(step) })
		parent.End()

		spans := recorder.Ended()
		if len(spans) != 3 || spans[0].Name() != "allreduce" || spans[1].Name() != "barrier" {
			t.Fatalf("%d spans: %v", len(spans), spans)
		}
		want := map[string]any{"polyrail.communicator": "train", "polyrail.rank": int64(0), "polyrail.ranks": int64(3),
			"polyrail.name": "grad", "polyrail.seq": int64(2), "polyrail.bytes": int64(4 << 20), "polyrail.algorithm": "ring"}
		got := attributes(spans[0])
		for key, value := range want {
			if got[key] != value {
				t.Errorf("%s is %v, want %v", key, got[key], value)
			}
		}
		if spans[0].Parent().SpanID() != parent.SpanContext().SpanID() || spans[0].Status().Code != codes.Unset {
			t.Errorf("the span's parent is %v, its status %v", spans[0].Parent(), spans[0].Status())
		}
		if took := spans[0].EndTime().Sub(spans[0].StartTime()); took < 0 || took > time.Minute {
			t.Errorf("the operation took %v", took)
		}
	})
}

// faulty is a processor of spans that panics.
type faulty struct{ tracing.SpanProcessor }

func (faulty) OnEnd(tracing.ReadOnlySpan) { panic("the exporter is gone") }

func TestOperationsEndThoughTheirSpansPanic(t *testing.T) {
	provider := tracing.NewTracerProvider(tracing.WithSpanProcessor(faulty{tracetest.NewSpanRecorder()}))
	inBed(t, 2, 1, func(c *Config) { c.Spans = provider }, func(b *bed) {
		comms := b.form("train")
		for _, elements := range []int{1, 100_000} {
			b.each(func(i int) error {
				buf := operand(i, elements)
				if err := b.returned("AllReduce", time.Second, func() error {
					return AllReduce(b.t.Context(), comms[i], buf, Sum)
				}); err != nil {
					return err
				}
				return checkSum(buf, 2)
			})
		}
		if log := b.log.String(); !strings.Contains(log, "the exporter is gone") {
			t.Error("the log says nothing of the panics")
		}
	})
}

func TestAFailedOperationsSpanSaysWhy(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	inBed(t, 2, 1, func(c *Config) {
		c.Spans = tracing.NewTracerProvider(tracing.WithSpanProcessor(recorder))
	}, func(b *bed) {
		comms := b.form("train")
		cause := errors.New("the step was given up")
		ctx, cancel := context.WithCancelCause(b.t.Context())
		work, err := StartAllReduce(ctx, comms[0], make([]float32, 1<<20), Sum) // rank 1 doesn't call
		if err != nil {
			t.Fatal(err)
		}
		cancel(cause)
		if err := work.Wait(b.t.Context()); !errors.Is(err, cause) {
			t.Fatalf("ended with %v", err)
		}
		if err := comms[0].Barrier(b.t.Context()); err == nil { // never starts
			t.Fatal("a barrier on a broken communicator")
		}
		spans := recorder.Ended()
		if len(spans) != 2 {
			t.Fatalf("%d spans", len(spans))
		}
		for _, s := range spans {
			told := slices.ContainsFunc(s.Events(), func(e tracing.Event) bool {
				return slices.ContainsFunc(e.Attributes, func(a attribute.KeyValue) bool { return a.Key == "exception.message" })
			})
			if s.Status().Code != codes.Error || !told {
				t.Errorf("%s: status %v, events %v", s.Name(), s.Status(), s.Events())
			}
		}
	})
}
