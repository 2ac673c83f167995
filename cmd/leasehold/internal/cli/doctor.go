package cli

import (
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/doctor"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
)

// codeProblems is doctor's exit code where a promise does not hold.
const codeProblems = 1

func (a *app) doctor() *cobra.Command {
	var asJSON bool
	var quorum []string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what the server's settings mean for the leases",
		Long: `doctor looks at the version, the user's rights, eviction, persistence, replicas,
clocks and messages of the server, or of each primary of a Cluster. It says
which of leasehold's promises hold there, and what to change. With --quorum it
looks at each of the servers, and whether one of them is there twice.

It writes no key. Rights are tried with commands that change nothing.

Exit codes: 0 all is well, or nothing worse than a note; 1 a promise does not
hold; 64 bad arguments; 69 Redis is out of reach; 77 it refuses the user.`,
		Example: `  leasehold doctor
  leasehold doctor --quorum redis://a,redis://b,redis://c
  leasehold doctor --json | jq '.findings[] | select(.grade == "problem")'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			tell := func(report doctor.Report, err error) error {
				if err != nil {
					return err
				}
				if asJSON {
					err = a.json(report)
				} else {
					a.report(report)
				}
				if err == nil && report.HasProblem() {
					return &run.Error{Code: codeProblems}
				}
				return err
			}
			if quorum != nil {
				rdbs, err := a.dialAll(c.Context(), quorum)
				if err != nil {
					return err
				}
				for _, rdb := range rdbs {
					defer rdb.Close()
				}
				return withCode(tell(doctor.LookQuorum(c.Context(), rdbs, a.prefix)))
			}
			return a.with(c.Context(), func(rdb redis.UniversalClient) error {
				return tell(doctor.Look(c.Context(), rdb, a.prefix))
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one object")
	c.Flags().StringSliceVar(&quorum, "quorum", nil, "URLs of the servers of a quorum, instead of --redis, separated by commas")
	return c
}

const columns = 80

func (a *app) report(r doctor.Report) {
	const indent = "                      "
	for _, f := range r.Findings {
		head := fmt.Sprintf("%-8s %-12s ", f.Grade, f.Check)
		out := text.Wrap(text.Safe(f.Says)+".", indent, columns)
		fmt.Fprint(a.out, head+out[len(head):])
		if f.Means != "" {
			fmt.Fprint(a.out, text.Wrap(f.Means, indent, columns))
		}
		if f.Change != "" {
			fmt.Fprint(a.out, text.Wrap("To change it: "+text.Safe(f.Change), indent, columns))
		}
	}
	fmt.Fprintln(a.out, "\nWhat is promised here:")
	for _, p := range r.Promises {
		head := fmt.Sprintf("%-8s ", map[doctor.Grade]string{doctor.Good: "yes", doctor.Note: "mostly", doctor.Bad: "no", doctor.Unknown: "unknown"}[p.Grade])
		words := p.Promise
		if p.Because != "" {
			words += ": " + p.Because
		}
		out := text.Wrap(words+".", "         ", columns)
		fmt.Fprint(a.out, head+out[len(head):])
	}
}
