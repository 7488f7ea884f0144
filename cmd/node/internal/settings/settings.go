// Package settings gives every flag of a command two twins: an environment variable
// and a key of a YAML file. The command line wins over the environment, the
// environment over the file, the file over the flag's default.
//
// It owns where a value comes from and how lists and sizes are written. What a flag
// means is the command's business.
package settings

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// ConfigFlag is the flag that names the YAML file. It has an environment twin, but
// no key: a file does not name another file.
const ConfigFlag = "config"

const envPrefix = "POLYRAIL_"

// EnvName is the environment twin of a flag: "rank-timeout" is POLYRAIL_RANK_TIMEOUT.
func EnvName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// WithoutTwins returns the environment env ("KEY=value") without any flag's twin, for
// a child process that gets everything on its command line.
func WithoutTwins(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, envPrefix)
	})
}

// Apply sets each flag that the command line left alone from the environment or from
// the file that the flag --config names. known tells which keys a file may hold: those of
// all commands, so that one file serves them all; any other key is an error that names it.
// An error names the variable or the file and key whose value is at fault.
func Apply(flags *pflag.FlagSet, known func(key string) bool) error {
	v := viper.New()
	file, err := readFile(v, flags, known)
	if err != nil {
		return err
	}
	var fault error
	flags.VisitAll(func(f *pflag.Flag) {
		if fault != nil || f.Changed || !hasKey(f.Name) {
			return
		}
		fault = applyOne(flags, f, v, file)
	})
	return fault
}

// readFile reads the file that --config names, if any, into v, and returns its name.
func readFile(v *viper.Viper, flags *pflag.FlagSet, known func(key string) bool) (string, error) {
	f := flags.Lookup(ConfigFlag)
	if f == nil {
		return "", nil
	}
	file := f.Value.String()
	if env := os.Getenv(EnvName(ConfigFlag)); !f.Changed && env != "" {
		file = env
	}
	if file == "" {
		return "", nil
	}
	v.SetConfigFile(file)
	v.SetConfigType("yaml")
	if err := v.ReadInConfig(); err != nil {
		return "", fmt.Errorf("config file %s: %w", file, err)
	}
	var unknown []string
	for _, key := range v.AllKeys() {
		if !hasKey(key) || !known(key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return "", fmt.Errorf("config file %s: unknown key %s (a key is the name of a flag)", file, strings.Join(unknown, ", "))
	}
	return file, nil
}

func hasKey(flag string) bool { return flag != ConfigFlag && flag != "help" }

func applyOne(flags *pflag.FlagSet, f *pflag.Flag, v *viper.Viper, file string) error {
	source := "environment " + EnvName(f.Name)
	var value any = os.Getenv(EnvName(f.Name))
	if value == "" {
		source = fmt.Sprintf("config file %s: key %s", file, f.Name)
		value = v.Get(f.Name)
	}
	var items []any
	switch value := value.(type) {
	case nil:
		return nil
	case []any:
		items = value
	case map[string]any:
		return fmt.Errorf("%s: a value or a list is wanted", source)
	default:
		items = []any{value}
	}
	for _, item := range items {
		if err := flags.Set(f.Name, fmt.Sprint(item)); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	return nil
}
