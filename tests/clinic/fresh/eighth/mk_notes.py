import json,re
C=json.load(open('cases.json')); L=[re.match(r'([a-z_]+?)-(\S+): steps (\d+), rate ([\d.]+)/s, healthy ([\d.]+)/s, factor ([\d.]+)',l).groups() for l in open('measure.log')]
# the latest measurement of each case is of its final text
last={(n,f):(s,r,h,x) for n,f,s,r,h,x in L}
o="""Rates in steps/s; each is the LAST measurement of the case. The machine was shared and noisy
(load average 4 to 5.5 on 2 cores, healthy rates vary up to 2x between runs), each pair was
measured one after the other within about two minutes. measure.log has every run, also those of
earlier texts of the scripts. Most cases were measured twice or more; see measure.log.

"""
for c in C:
    if c['fault']=='healthy': o+="\n"; continue
    s,r,h,x=last[c['name'],c['fault']]
    o+=f"{c['name']}-{c['fault']}: healthy {h}/s, faulty {r}/s, factor {x} (STEPS {s})\n"
o+="""
Remarks
- sessrec-workspaces: with a table of 120k items it gave 2.10, 1.65, 1.75 and once 0.86 (noise or too little copying);
  the table was enlarged to 300k items: 3.37 and 5.27 since.
- sessrec-host-sync: a plain .item() of the loss each step gave only 1.28, then 1.03 (the dispatch here hardly runs
  ahead), so the fault reads 128 losses one by one: also a small dispatched slice for each element, a part
  of its cost is dispatch (missing-jit would not be wholly wrong).
- burgers_ctl-etl is the weakest (1.48 to 1.59). 
- inpaint-omp-threads: eight Python threads contend for the GIL as well as for the cores; start-up takes about 35 s.
- molmp-recompilation has a finite number of shapes (rounded to 16 nodes, 32 edges): slow for hundreds of steps.
- tried and dropped: avx (flowcal 0.99, molmp 1.02-1.03, burgers 1.14-1.29, inpaint 1.60 once and 1.05 once),
  idle-devices (the healthy script with two host devices deadlocked in XLA's all-reduce).
"""
open('truth_notes.txt','w').write(o); print(o)
