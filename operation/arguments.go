package operation

import (
	"context"
	"time"

	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/catalogue/schema"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

// rememberSchema is how long a compiled schema that nobody uses is kept.
const rememberSchema = time.Hour

// fits holds the arguments of a call against the schema of its tool, before anything
// is spent. A tool that was never imported has none to hold them against.
func (r *Runner) fits(ctx context.Context, ask sealed, d policy.Decision) error {
	offer, there, _ := r.policy.Current().Offer(ask.Server, ask.Tool)
	if !there || offer.Orphaned {
		return nil
	}
	call, err := callOf(ask, d) // as the server gets them
	if err != nil {
		return err
	}
	compiled, err := r.schema(ctx, ask.Server, ask.Tool, offer.Pin)
	if err != nil {
		return err
	}
	if err := compiled.Check(call.Arguments); err != nil {
		return fault.New("operation.fits", fault.ArgumentsInvalid, "arguments: "+err.Error())
	}
	return nil
}

// schema returns the schema of a tool as the import with that pin found it.
func (r *Runner) schema(ctx context.Context, server, tool, pin string) (*schema.Schema, error) {
	key := server + " " + tool + " " + pin
	if compiled, ok := r.schemas.Get(key); ok {
		return compiled, nil
	}
	kept, err := r.kept(ctx, server, tool)
	if err != nil {
		return nil, err
	}
	compiled, err := schema.Compile(kept.Schema)
	if err != nil {
		return nil, fault.New("operation.schema", fault.InternalError, "a schema that was taken does not compile")
	}
	if kept.Pin == pin { // else there was another import meanwhile, whose schema it is
		r.schemas.Set(key, compiled, rememberSchema)
	}
	return compiled, nil
}

func (r *Runner) kept(ctx context.Context, server, tool string) (catalogue.Kept, error) {
	tools, err := r.catalogue.Tools(ctx, server)
	if err != nil {
		return catalogue.Kept{}, err
	}
	for _, k := range tools {
		if k.Name == tool {
			return k, nil
		}
	}
	return catalogue.Kept{}, fault.New("operation.kept", fault.ToolNotOffered, "")
}
