-- Planned wakes that are armed. Those of an agent that were carried out are kept for a month, each as a job of its own.
CREATE INDEX alarm_planned ON alarm (instance, job_id) WHERE state = 'armed' AND instance >= 4503599627370496;
