package polyrail

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/actors/engine"
)

// scope is the name under which polyrail makes spans.
const scope = "github.com/polyrail/polyrail"

// tracer is what makes the spans of operations; nil where nobody wants them.
func (c Config) tracer() trace.Tracer {
	if c.Spans == nil {
		return nil
	}
	return c.Spans.Tracer(scope)
}

// begin starts an operation, and its span where spans are wanted.
func (c *Communicator) begin(ctx context.Context, inner *communicator.Communicator, r *engine.Request) (*engine.Work, error) {
	if c.tracer == nil {
		return inner.Start(ctx, r)
	}
	_, span := c.tracer.Start(ctx, r.Kind.String(), trace.WithAttributes(
		attribute.String("polyrail.communicator", inner.Name()),
		attribute.Int("polyrail.rank", inner.Rank()),
		attribute.Int("polyrail.ranks", inner.Size()),
	))
	if r.Name != "" {
		span.SetAttributes(attribute.String("polyrail.name", r.Name))
	}
	r.Ended = func(e engine.End) {
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
