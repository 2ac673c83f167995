module github.com/leasehold-go/leasehold/robustness

go 1.26.0
