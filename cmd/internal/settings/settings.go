// Package settings gives every flag of a command two twins: an environment variable
// and a key of a YAML file. The command line wins over the environment, the
// environment over the file, the file over the flag's default.
//
// It owns where a value comes from and how lists and sizes are written. What a flag
// means is the command's business.
package settings

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// ConfigFlag is the flag that names the YAML file. It has an environment twin, but
// no key: a file does not name another file.
const ConfigFlag = "config"

// EnvPrefix begins the name of each environment variable that sets a flag.
const EnvPrefix = "POLYRAIL_"

// EnvName is the environment twin of a flag: "rank-timeout" is POLYRAIL_RANK_TIMEOUT.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// WithoutTwins returns the environment env ("KEY=value") without any flag's twin, for
// a child process that gets everything on its command line.
func WithoutTwins(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, EnvPrefix)
	})
}

// Apply sets each flag that the command line left alone from the environment or from
// the file that the flag --config names. known tells which keys a file may hold: those of
// all commands, so that one file serves them all; any other key is an error that names it.
// An error names the variable or the file and key whose value is at fault. The end of ctx is an
// error while the file is read.
func Apply(ctx context.Context, flags *pflag.FlagSet, known func(key string) bool) error {
	file, err := openConfig(ctx, flags, known)
	if err != nil {
		return err
	}
	var fault error
	flags.VisitAll(func(f *pflag.Flag) {
		if fault != nil || f.Changed || !hasKey(f.Name) {
			return
		}
		fault = applyOne(flags, f, file)
	})
	return fault
}

// hasKey reports whether a flag has twins: what ends a command at once has none.
func hasKey(flag string) bool { return flag != ConfigFlag && flag != "help" && flag != "version" }

func applyOne(flags *pflag.FlagSet, f *pflag.Flag, file *config) error {
	source, items := "environment "+EnvName(f.Name), []string{os.Getenv(EnvName(f.Name))}
	if items[0] == "" {
		var err error
		source = fmt.Sprintf("config file %s: key %s", file.name, f.Name)
		if items, err = file.values(f.Name); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	if _, several := f.Value.(interface{ takesSeveral() }); len(items) > 1 && !several {
		return fmt.Errorf("%s: one value is wanted, not %d", source, len(items))
	}
	for _, item := range items {
		if err := Set(flags, f.Name, item); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	return nil
}

// Set sets a flag. Its error does not repeat the value where that may hold a password.
func Set(flags *pflag.FlagSet, name, value string) error {
	err := flags.Set(name, value)
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
		err = Cause(invalid)
	}
	return err
}

// Cause is why a flag doesn't take a value, without Go's words for numbers and times.
func Cause(invalid *pflag.InvalidValueError) error {
	err, value := invalid.Unwrap(), invalid.GetValue()
	_, notANumber := strconv.ParseFloat(value, 64)
	number := (*strconv.NumError)(nil)
	switch {
	case notANumber == nil && invalid.GetFlag().Value.Type() == "duration":
		return fmt.Errorf("%q has no unit: a time is written like \"1s\" or \"500ms\"", value)
	case !errors.As(err, &number):
		return err
	case invalid.GetFlag().Value.Type() == "bool":
		return fmt.Errorf("%q is neither true nor false", number.Num)
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%q is out of range", number.Num)
	}
	return fmt.Errorf("%q is not a whole number", number.Num)
}
