package op

import (
	"strings"
	"testing"
)

func TestBuiltInOperatorsHaveNamesThatParse(t *testing.T) {
	for _, o := range BuiltIn {
		got, err := Parse(o.String())
		if err != nil || got.Code() != o.Code() || o.UserDefined() != nil {
			t.Errorf("%v: parsed as %v, %v", o, got, err)
		}
	}
	for _, s := range []string{"", "none", "user", "SUM"} {
		if o, err := Parse(s); err == nil {
			t.Errorf("%q parsed as %v", s, o)
		}
	}
}

func TestAlgorithmsHaveNamesThatParse(t *testing.T) {
	for a := Auto; a < algorithmEnd; a++ {
		if got, err := ParseAlgorithm(a.String()); err != nil || got != a {
			t.Errorf("%v: parsed as %v, %v", a, got, err)
		}
	}
	if a, err := ParseAlgorithm("star"); err == nil {
		t.Errorf("parsed as %v", a)
	}
}

func TestADescriptorNamesWhatRanksMayDifferIn(t *testing.T) {
	for want, d := range map[string]Descriptor{
		"allreduce(10 × float32, sum, ring)":             {KindAllReduce, F32, CodeSum, Ring, 0, 0, 10},
		"allreduce(batch of 3, 40 × int8, maxloc, tree)": {KindAllReduce, Int8, CodeMaxLoc, Tree, 0, 3, 40},
		"broadcast(10 × float32loc, root 2, chain)":      {KindBroadcast, F32Loc, CodeNone, Chain, 2, 0, 10},
		"reduce(float32, sum, root 9)":                   {KindReduce, F32, CodeSum, Auto, 9, 0, 0}, // refused
	} {
		if d.String() != want {
			t.Errorf("%v, want %s", d, want)
		}
	}
}

func TestCheckAllowsOperatorsOnTheirTypesOnly(t *testing.T) {
	for _, o := range BuiltIn {
		bitwise := o.Code() == CodeBitAnd || o.Code() == CodeBitOr || o.Code() == CodeBitXor
		for _, d := range DTypes {
			err := o.Check(d)
			pairs := o.Code() == CodeMinLoc || o.Code() == CodeMaxLoc
			if refused := bitwise && !d.Integer() || pairs != d.Loc(); refused != (err != nil) {
				t.Errorf("%v of %v: %v", o, d, err)
			}
			if err != nil && (!strings.Contains(err.Error(), o.String()) || !strings.Contains(err.Error(), d.String())) {
				t.Errorf("the error names not both: %v", err)
			}
		}
	}
}

func TestCheckRefusesWhatIsNoOperator(t *testing.T) {
	nothing := func(_, _, _ []byte) error { return nil }
	for name, c := range map[string]struct {
		o Op
		d DType
	}{
		"zero operator":  {Op{}, F32},
		"zero type":      {Sum, 0},
		"unknown type":   {Sum, dtypeEnd},
		"another type":   {User("mine", F32, nothing), F64},
		"no function":    {User("mine", F32, nil), F32},
		"no name":        {User("", F32, nothing), F32},
		"unknown number": {Op{code: codeEnd}, F32},
	} {
		if c.o.Check(c.d) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := User("mine", F32, nothing).Check(F32); err != nil {
		t.Errorf("a good one: %v", err)
	}
	if err := User("mine", F32Loc, nothing).Check(F32Loc); err != nil {
		t.Errorf("a good one on pairs: %v", err)
	}
}
