// Package leaseholdotel makes metrics and traces of OpenTelemetry of what leasehold's
// handles do. One line switches it on:
//
//	semaphore.New(rdb, semaphore.Config{…, Observer: leaseholdotel.Default()})
//
// One [Observer] serves any number of handles. docs/telemetry.md of leasehold lists
// the instruments, and has a recipe for Prometheus, a dashboard and alert rules.
package leaseholdotel
