package polyrail

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/actors/engine"
)

// scope is the name under which polyrail makes spans.
const scope = "github.com/polyrail/polyrail"

// spans makes the spans of operations.
type spans struct {
	tracer trace.Tracer
	log    *slog.Logger
}

// spans is nil where nobody wants them.
func (c Config) spans() *spans {
	if c.Spans == nil {
		return nil
	}
	return &spans{c.Spans.Tracer(scope), c.Logger}
}

// recovered logs the panic of a provider that ends a span. It is deferred: an operation must end all
// the same.
func (s *spans) recovered() {
	if r := recover(); r != nil {
		s.log.Error("Config.Spans panicked", "reason", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
}

// begin starts an operation, and its span where spans are wanted.
func (c *Communicator) begin(ctx context.Context, inner *communicator.Communicator, r *engine.Request) (*engine.Work, error) {
	if c.spans == nil {
		return inner.Start(ctx, r)
	}
	_, span := c.spans.tracer.Start(ctx, r.Kind.String(), trace.WithAttributes(
		attribute.String("polyrail.communicator", inner.Name()),
		attribute.Int("polyrail.rank", inner.Rank()),
		attribute.Int("polyrail.ranks", inner.Size()),
	))
	if r.Name != "" {
		span.SetAttributes(attribute.String("polyrail.name", r.Name))
	}
	r.Ended = func(e engine.End) {
		defer c.spans.recovered()
		span.SetAttributes(attribute.Int64("polyrail.seq", int64(e.Seq)), attribute.Int("polyrail.bytes", e.Bytes),
			attribute.Stringer("polyrail.algorithm", e.Algorithm))
		finish(span, e.Err)
	}
	w, err := inner.Start(ctx, r)
	if err != nil { // it has no number, and nothing ends it
		finish(span, err)
	}
	return w, err
}

func finish(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
