// Made from docs/src/openapi.json by `npm run generate`. Do not edit.
export interface paths {
    "/v1/hello": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["hello"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/shutdown": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["shutdown"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["audit"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dashboard-link": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dashboard-link"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dashboard-users": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dashboard-users"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dashboard-user-set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dashboard-user-set"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dashboard-password-set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dashboard-password-set"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dashboard-user-remove": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dashboard-user-remove"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dashboard-token-create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dashboard-token-create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dashboard-token-remove": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dashboard-token-remove"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-discover": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-discover"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-import"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-export"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-take-over": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-take-over"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/standby-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["standby-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/standby": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["standby-list-by-get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-add": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-add"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-destroy": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-destroy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-freeze": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-freeze"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-sync": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-sync"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-set"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-checkpoint": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-checkpoint"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-reguid": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-reguid"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-upgrade": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-upgrade"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/label-clear": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["label-clear"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-clear": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-clear"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/device-offline": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["device-offline"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/device-online": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["device-online"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/device-attach": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["device-attach"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/device-detach": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["device-detach"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/device-remove": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["device-remove"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/disk-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["disk-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-scan": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-scan"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-ddt-prune": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-ddt-prune"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-prefetch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-prefetch"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/device-sweep": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["device-sweep"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-reopen": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-reopen"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["follow-by-get"];
        put?: never;
        post: operations["events"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/events-clear": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["events-clear"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/scrub-schedules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["scrub-schedules"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/scrub-schedule-set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["scrub-schedule-set"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/snapshot-schedules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["snapshot-schedules"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/snapshot-schedules-run": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["snapshot-schedules-run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/share-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["share-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/fault-inject": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["fault-inject"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/fault-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["fault-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/fault-clear": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["fault-clear"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/what-if": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["what-if"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tunable-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["tunable-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tunable-set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["tunable-set"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/hook-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["hook-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/hook-add": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["hook-add"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/hook-remove": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["hook-remove"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/hook-test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["hook-test"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/volume-trace": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["volume-trace"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/counters": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["counters"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-iostat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-iostat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/vdev-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["vdev-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-status"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-history"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dataset-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dataset-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dataset-create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dataset-create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dataset-clone": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dataset-clone"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dataset-destroy": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dataset-destroy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dataset-rename": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dataset-rename"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dataset-promote": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dataset-promote"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/receive-abort": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["receive-abort"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/snapshot-create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["snapshot-create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dataset-rollback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dataset-rollback"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/snapshot-hold": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["snapshot-hold"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/bookmark-create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["bookmark-create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/property-set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["property-set"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/property-inherit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["property-inherit"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/userspace": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["userspace"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/block-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["block-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/block-share": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["block-share"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/dataset-activity": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["dataset-activity"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/file-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["file-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/file-restore": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["file-restore"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/hold-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["hold-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/delegation-allow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["delegation-allow"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/delegation-unallow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["delegation-unallow"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/delegation-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["delegation-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/key-load": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["key-load"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/key-unload": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["key-unload"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/key-change": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["key-change"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/key-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["key-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/mount": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["mount"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/unmount": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["unmount"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/mount-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["mount-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/share": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["share"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/unshare": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["unshare"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nfs-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["nfs-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/volume-attach": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["volume-attach"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/volume-detach": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["volume-detach"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/volume-attached": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["volume-attached"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/volume-reshape": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["volume-reshape"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/reshape-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["reshape-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/volume-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["volume-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-recipes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-recipes"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-presets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-presets"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-draft": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-draft"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-plan": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-plan"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-start": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-start"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-stop": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-stop"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-remove": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-remove"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-report": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-report"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-compare": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-compare"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-apply": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-apply"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-revert": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-revert"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-advise": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-advise"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lab-layouts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["lab-layouts"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/volume-load": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["volume-load"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pool-view": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pool-view"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/follow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["follow"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/diff": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["diff"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/send": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["send"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/receive-stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["receive-stream"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        ApiError: {
            kind: components["schemas"]["ErrorKind"];
            message: string;
        };
        /** @enum {string} */
        ErrorKind: "invalid" | "not-found" | "busy" | "refused" | "failed";
        Hello: Record<string, never>;
        DaemonInfo: {
            version: string;
            /** Format: uint32 */
            pid: number;
            pools: string[];
            nbd_socket?: string | null;
            nbd_address?: string | null;
        };
        Shutdown: Record<string, never>;
        GetAudit: {
            /**
             * Format: uint
             * @default 0
             */
            count: number;
        };
        AuditEntry: {
            /**
             * Format: uint64
             * @default 0
             */
            time: number;
            /**
             * Format: uint32
             * @default 0
             */
            uid: number;
            /** @default null */
            user: string | null;
            from?: string | null;
            token?: string | null;
            /**
             * Format: int32
             * @default null
             */
            pid: number | null;
            /** @default null */
            role: string | null;
            /** @default  */
            action: string;
            object?: string | null;
            /** Format: uint64 */
            and_more?: number;
            /** @default  */
            result: string;
            /** Format: uint64 */
            lost?: number;
        };
        GetDashboardLink: {
            /** @default null */
            listen: string | null;
        };
        DashboardLink: {
            url: string;
            /** Format: uint64 */
            expires_in: number;
            certificate_fingerprint?: string | null;
            addresses: string[];
        };
        ListDashboardUsers: Record<string, never>;
        DashboardUser: {
            name: string;
            role: components["schemas"]["DashboardRole"];
            has_password: boolean;
            /** Format: uint64 */
            created: number;
            /** Format: uint64 */
            sessions: number;
            tokens: components["schemas"]["DashboardToken"][];
        };
        /** @enum {string} */
        DashboardRole: "metrics" | "viewer" | "operator" | "admin";
        DashboardToken: {
            name: string;
            role: components["schemas"]["DashboardRole"];
            /** Format: uint64 */
            created: number;
            /** Format: uint64 */
            ends?: number | null;
            /** Format: uint64 */
            last_used?: number | null;
        };
        SetDashboardUser: {
            /** @default  */
            name: string;
            /** @default null */
            role: components["schemas"]["DashboardRole"] | null;
            /** @default null */
            password: string | null;
        };
        SetDashboardPassword: {
            /** @default  */
            old: string;
            /** @default  */
            new: string;
        };
        RemoveDashboardUser: {
            /** @default  */
            name: string;
        };
        CreateDashboardToken: {
            name: string;
            role: components["schemas"]["DashboardRole"];
            /**
             * Format: uint32
             * @default null
             */
            days: number | null;
        };
        NewDashboardToken: {
            token: string;
            /** Format: uint64 */
            ends?: number | null;
        };
        RemoveDashboardToken: {
            /** @default  */
            name: string;
        };
        DiscoverPools: {
            /** @default [] */
            search: string[];
            /** @default null */
            cachefile: string | null;
            /** @default false */
            destroyed: boolean;
            /** @default null */
            pool: string | null;
        };
        ImportablePool: {
            name: string;
            guid: string;
            state: components["schemas"]["State"];
            destroyed: boolean;
            exported: boolean;
            /** Format: uint64 */
            version: number;
            reason: components["schemas"]["Reason"];
            /** Format: uint64 */
            errata: number;
            comment?: string | null;
            hostname?: string | null;
            /** Format: uint64 */
            hostid: number;
            /** Format: uint64 */
            timestamp: number;
            unknown_features: string[];
            /** Format: uint64 */
            missing_tops: number;
            vdevs: components["schemas"]["VdevNode"];
            duplicates: string[];
        };
        /** @enum {string} */
        State: "OFFLINE" | "REMOVED" | "UNAVAIL" | "FAULTED" | "DEGRADED" | "ONLINE";
        /** @enum {string} */
        Reason: "ok" | "resilvering" | "hostid-mismatch" | "hostid-active" | "hostid-required" | "version-newer" | "unsupported-features-read" | "unsupported-features-write" | "bad-guid-sum" | "bad-log" | "faulted-no-replicas" | "missing-no-replicas" | "corrupt-label-no-replicas" | "io-failure-wait" | "io-failure-continue" | "corrupt-pool" | "corrupt-data" | "faulted-replicas" | "missing-replicas" | "corrupt-label-replicas" | "awaiting-resilver" | "failing-device" | "offline-device" | "removed-device" | "non-native-ashift" | "errata" | "version-older" | "features-disabled" | "compatibility-error" | "incompatible-features";
        VdevNode: {
            name: string;
            kind: string;
            guid: string;
            path?: string | null;
            devid?: string | null;
            phys_path?: string | null;
            modelled?: string | null;
            whole_disk: boolean;
            not_present: boolean;
            class: components["schemas"]["VdevClass"];
            state: components["schemas"]["State"];
            aux: components["schemas"]["Aux"];
            /** @default null */
            in_use_by: string | null;
            /** @default false */
            awaits_resilver: boolean;
            /** @default false */
            cannot_trim: boolean;
            /**
             * Format: uint32
             * @default 0
             */
            configured_ashift: number;
            /**
             * Format: uint32
             * @default 0
             */
            physical_ashift: number;
            /** @default false */
            is_not_allocating: boolean;
            /** @default false */
            is_being_removed: boolean;
            /**
             * Format: uint64
             * @default 0
             */
            slow_ios: number;
            /**
             * Format: uint64
             * @default 0
             */
            scan_processed: number;
            /** @default false */
            resilver_deferred: boolean;
            /** Format: uint64 */
            read_errors: number;
            /** Format: uint64 */
            write_errors: number;
            /** Format: uint64 */
            checksum_errors: number;
            /**
             * Format: uint64
             * @default 0
             */
            self_healed: number;
            /** Format: uint64 */
            device_bytes?: number | null;
            /**
             * Format: uint64
             * @default null
             */
            required_bytes: number | null;
            space?: components["schemas"]["VdevSpace"] | null;
            children: components["schemas"]["VdevNode"][];
        };
        /** @enum {string} */
        VdevClass: "normal" | "special" | "dedup" | "log" | "spare" | "l2cache";
        /** @enum {string} */
        Aux: "none" | "open-failed" | "corrupt-data" | "no-replicas" | "bad-guid-sum" | "too-small" | "bad-label" | "spared" | "errors-exceeded" | "external" | "children-offline";
        VdevSpace: {
            /** Format: uint64 */
            size: number;
            /** Format: uint64 */
            allocated: number;
            /** Format: uint64 */
            free: number;
            /**
             * Format: uint64
             * @default 0
             */
            deflated: number;
            /** Format: uint64 */
            expandable: number;
            /** Format: uint64 */
            fragmentation?: number | null;
            /** Format: uint64 */
            capacity: number;
        };
        ImportPool: {
            /** @default null */
            pool: string | null;
            /** @default null */
            new_name: string | null;
            /** @default false */
            temporary: boolean;
            /** @default [] */
            search: string[];
            /** @default null */
            cachefile: string | null;
            /** @default false */
            destroyed: boolean;
            /** @default false */
            force: boolean;
            /** @default null */
            rewind: components["schemas"]["Rewind"] | null;
            /** @default false */
            rewind_to_checkpoint: boolean;
            /** @default false */
            missing_log: boolean;
            /** @default false */
            no_mount: boolean;
            /** @default false */
            load_keys: boolean;
            /** @default null */
            altroot: string | null;
            /** @default [] */
            properties: [
                string,
                string
            ][];
            /** @default [] */
            mount_options: string[];
            /** @default null */
            command: string | null;
        };
        Rewind: {
            /** @default false */
            dry_run: boolean;
            /** @default false */
            extreme: boolean;
            /**
             * Format: uint64
             * @default null
             */
            txg: number | null;
        };
        Imported: {
            pools: components["schemas"]["OpenedPool"][];
            failed: components["schemas"]["ApiError"][];
        };
        OpenedPool: {
            name: string;
            guid: string;
            /** Format: uint64 */
            txg: number;
            /** Format: uint64 */
            timestamp: number;
            mounts: components["schemas"]["Mounted"][];
            volumes: components["schemas"]["ServedVolume"][];
            warnings: string[];
        };
        Mounted: {
            dataset: string;
            mountpoint: string;
            options: string[];
            /** @default [] */
            given: string[];
            /** @default false */
            by_system: boolean;
            /** Format: uint64 */
            answered_through_rings?: number | null;
        };
        ServedVolume: {
            name: string;
            /** Format: uint64 */
            size_bytes: number;
            /** Format: uint32 */
            block_bytes: number;
            unavailable?: string | null;
            uri?: string | null;
            tcp_uris: string[];
            iscsi_uris: string[];
            vhost_user_socket?: string | null;
        };
        ExportPool: {
            /** @default [] */
            pools: string[];
            /** @default false */
            all: boolean;
            /** @default false */
            force: boolean;
            /** @default false */
            stays_open: boolean;
            /** @default null */
            command: string | null;
        };
        TakeOverPool: {
            /** @default  */
            pool: string;
            /** @default [] */
            addresses: string[];
            /** @default null */
            command: string | null;
        };
        ListStandby: Record<string, never>;
        StandbyPool: {
            pool: string;
            addresses: string[];
            state: components["schemas"]["StandbyState"];
            by_lease: boolean;
            owner?: string | null;
            /** Format: uint64 */
            unchanged_ms?: number | null;
            /** Format: uint64 */
            take_overs: number;
            /** Format: uint64 */
            took_ms?: number | null;
            message?: string | null;
        };
        /** @enum {string} */
        StandbyState: "active" | "watching" | "free" | "exported" | "unreachable" | "failed";
        CreatePool: {
            /** @default  */
            name: string;
            /** @default null */
            temporary_name: string | null;
            /**
             * @default {
             *       "vdevs": [],
             *       "spares": [],
             *       "cache": []
             *     }
             */
            devices: components["schemas"]["NewDevices"];
            /** @default false */
            force: boolean;
            /** @default false */
            dry_run: boolean;
            /** @default false */
            no_features: boolean;
            /** @default [] */
            properties: [
                string,
                string
            ][];
            /** @default [] */
            root_properties: [
                string,
                string
            ][];
            /** @default null */
            key: number[] | null;
            /** @default null */
            altroot: string | null;
            /** @default false */
            no_mount: boolean;
            /** @default null */
            command: string | null;
        };
        NewDevices: {
            /** @default [] */
            vdevs: components["schemas"]["NewVdev"][];
            /** @default [] */
            spares: string[];
            /** @default [] */
            cache: string[];
        };
        NewVdev: {
            layout: components["schemas"]["NewLayout"];
            /** @default normal */
            class: components["schemas"]["NewClass"];
            devices: string[];
        };
        NewLayout: "single" | "mirror" | {
            raidz: {
                /** Format: uint8 */
                nparity: number;
            };
        } | {
            draid: {
                /** Format: uint8 */
                nparity: number;
                /** Format: uint8 */
                ndata: number;
                /** Format: uint8 */
                nspares: number;
            };
        };
        /** @enum {string} */
        NewClass: "normal" | "log" | "special" | "dedup";
        AddVdevs: {
            /** @default  */
            pool: string;
            /**
             * @default {
             *       "vdevs": [],
             *       "spares": [],
             *       "cache": []
             *     }
             */
            devices: components["schemas"]["NewDevices"];
            /** @default false */
            force: boolean;
            /** @default false */
            allow_in_use: boolean;
            /** @default false */
            allow_replication_mismatch: boolean;
            /** @default false */
            allow_ashift_mismatch: boolean;
            /** @default false */
            dry_run: boolean;
            /** @default [] */
            properties: [
                string,
                string
            ][];
            /** @default null */
            command: string | null;
        };
        DestroyPool: {
            /** @default  */
            pool: string;
            /** @default false */
            force: boolean;
            /** @default null */
            command: string | null;
        };
        Warnings: {
            /** @default [] */
            warnings: string[];
        };
        FreezePool: {
            /** @default  */
            pool: string;
        };
        SyncPools: {
            /** @default [] */
            pools: string[];
        };
        Listed: {
            entries: string[];
            failed: components["schemas"]["ApiError"][];
        };
        SetPoolProperty: {
            /** @default  */
            pool: string;
            /** @default null */
            vdev: string | null;
            /** @default  */
            property: string;
            /** @default  */
            value: string;
            /** @default null */
            command: string | null;
        };
        CheckpointPool: {
            /** @default  */
            pool: string;
            /** @default false */
            discard: boolean;
            /** @default false */
            wait: boolean;
            /** @default null */
            command: string | null;
        };
        ReguidPool: {
            /** @default  */
            pool: string;
            /**
             * Format: uint64
             * @default null
             */
            guid: number | null;
            /** @default null */
            command: string | null;
        };
        UpgradePools: {
            /** @default [] */
            pools: string[];
            /** @default false */
            dry_run: boolean;
            /**
             * Format: uint64
             * @default null
             */
            version: number | null;
            /** @default null */
            command: string | null;
        };
        Listed2: {
            entries: components["schemas"]["UpgradedPool"][];
            failed: components["schemas"]["ApiError"][];
        };
        UpgradedPool: {
            pool: string;
            /** Format: uint64 */
            version: number;
            features: string[];
        };
        ClearLabel: {
            /** @default  */
            device: string;
            /** @default false */
            force: boolean;
        };
        ClearErrors: {
            /** @default  */
            pool: string;
            /** @default null */
            device: string | null;
            /** @default null */
            command: string | null;
        };
        OfflineDevices: {
            /** @default  */
            pool: string;
            /** @default [] */
            devices: string[];
            /** @default false */
            temporary: boolean;
            /** @default false */
            fault: boolean;
            /** @default null */
            command: string | null;
        };
        OnlineDevices: {
            /** @default  */
            pool: string;
            /** @default [] */
            devices: string[];
            /** @default false */
            expand: boolean;
            /** @default null */
            command: string | null;
        };
        Listed3: {
            entries: components["schemas"]["OnlinedDevice"][];
            failed: components["schemas"]["ApiError"][];
        };
        OnlinedDevice: {
            device: string;
            state: components["schemas"]["State"];
            /** @default false */
            awaits_resilver: boolean;
        };
        AttachDevice: {
            /** @default  */
            pool: string;
            /** @default  */
            device: string;
            /** @default null */
            new_device: string | null;
            /** @default false */
            replace: boolean;
            /** @default false */
            force: boolean;
            /** @default [] */
            properties: [
                string,
                string
            ][];
            /** @default null */
            command: string | null;
        };
        DetachDevice: {
            /** @default  */
            pool: string;
            /** @default  */
            device: string;
            /** @default null */
            command: string | null;
        };
        RemoveDevices: {
            /** @default  */
            pool: string;
            /** @default [] */
            devices: string[];
            /** @default null */
            command: string | null;
        };
        ListDisks: {
            /** @default false */
            smart: boolean;
        };
        DiskEntry: {
            /** @default  */
            path: string;
            /** @default null */
            by_id: string | null;
            /** @default null */
            model: string | null;
            /** @default null */
            serial: string | null;
            /**
             * Format: uint64
             * @default 0
             */
            size: number;
            /**
             * Format: uint32
             * @default 0
             */
            sector: number;
            /**
             * Format: uint32
             * @default 0
             */
            physical_sector: number;
            /** @default false */
            rotational: boolean;
            /** @default false */
            removable: boolean;
            /** @default false */
            read_only: boolean;
            /** @default null */
            in_use: string | null;
            /** @default null */
            pool: string | null;
            /** @default false */
            may_be_forced: boolean;
            /** @default [] */
            partitions: components["schemas"]["DiskPartition"][];
            /** @default null */
            smart: components["schemas"]["DiskHealth"] | null;
        };
        DiskPartition: {
            /** @default  */
            path: string;
            /**
             * Format: uint64
             * @default 0
             */
            size: number;
            /** @default null */
            in_use: string | null;
        };
        DiskHealth: {
            /** @default null */
            healthy: boolean | null;
            /**
             * Format: int64
             * @default null
             */
            temperature: number | null;
            /**
             * Format: uint64
             * @default null
             */
            hours: number | null;
            /**
             * Format: uint64
             * @default null
             */
            reallocated: number | null;
            /**
             * Format: uint64
             * @default null
             */
            pending: number | null;
            /**
             * Format: uint64
             * @default null
             */
            uncorrectable: number | null;
            /**
             * Format: uint64
             * @default null
             */
            wear_percent: number | null;
            /** @default null */
            fault: string | null;
        };
        ScanPool: {
            /** @default  */
            pool: string;
            /** @default scrub */
            action: components["schemas"]["ScanAction"];
            /** @default false */
            errors_only: boolean;
            /** @default false */
            after_last: boolean;
            /**
             * Format: uint64
             * @default 0
             */
            since: number;
            /**
             * Format: uint64
             * @default 0
             */
            until: number;
            /** @default null */
            command: string | null;
        };
        /** @enum {string} */
        ScanAction: "scrub" | "pause" | "stop" | "resilver";
        PrunePool: {
            /** @default  */
            pool: string;
            /**
             * @default {
             *       "percent": 0
             *     }
             */
            which: components["schemas"]["PrunedEntries"];
            /** @default null */
            command: string | null;
        };
        PrunedEntries: {
            /** Format: uint64 */
            "older-than-days": number;
        } | {
            /** Format: uint64 */
            percent: number;
        };
        PrefetchPool: {
            /** @default  */
            pool: string;
            /** @default null */
            kind: components["schemas"]["TableKind"] | null;
        };
        /** @enum {string} */
        TableKind: "ddt" | "brt";
        SweepDevices: {
            /** @default  */
            pool: string;
            /** @default [] */
            devices: string[];
            /** @default trim */
            work: components["schemas"]["Sweep"];
            /** @default start */
            action: components["schemas"]["SweepAction"];
            /**
             * Format: uint64
             * @default 0
             */
            rate_bytes: number;
            /** @default null */
            command: string | null;
        };
        /** @enum {string} */
        Sweep: "trim" | "initialize";
        /** @enum {string} */
        SweepAction: "start" | "suspend" | "cancel" | "forget";
        ReopenPools: {
            /** @default [] */
            pools: string[];
        };
        GetEvents: {
            /**
             * Format: uint64
             * @default 0
             */
            after: number;
            /** @default null */
            pool: string | null;
        };
        EventList: {
            events: components["schemas"]["Event"][];
            /** Format: uint64 */
            dropped: number;
            /** Format: uint64 */
            last_eid: number;
        };
        Event: {
            /** Format: uint64 */
            eid: number;
            time: [
                number,
                number
            ];
            class: string;
            fields: [
                string,
                components["schemas"]["EventValue"]
            ][];
        };
        EventValue: unknown;
        ClearEvents: Record<string, never>;
        GetScrubSchedules: {
            /** @default [] */
            pools: string[];
        };
        Listed4: {
            entries: components["schemas"]["ScrubSchedule"][];
            failed: components["schemas"]["ApiError"][];
        };
        ScrubSchedule: {
            pool: string;
            schedule?: string | null;
            /** Format: uint64 */
            last?: number | null;
            /** Format: uint64 */
            next?: number | null;
            is_scanning: boolean;
        };
        SetScrubSchedule: {
            /** @default  */
            pool: string;
            /** @default  */
            schedule: string;
            /** @default null */
            command: string | null;
        };
        GetSnapshotSchedules: {
            /** @default [] */
            datasets: string[];
        };
        Listed5: {
            entries: components["schemas"]["SnapshotSchedule"][];
            failed: components["schemas"]["ApiError"][];
        };
        SnapshotSchedule: {
            dataset: string;
            schedule: string;
            source: components["schemas"]["Source"];
            idle?: string | null;
            kinds: components["schemas"]["ScheduledKind"][];
        };
        Source: "none" | "default" | "local" | {
            inherited: string;
        } | "received" | "temporary";
        ScheduledKind: {
            kind: components["schemas"]["SnapshotKind"];
            /** Format: uint32 */
            keep: number;
            /** Format: uint32 */
            there: number;
            /** Format: uint64 */
            newest?: number | null;
            ruled_out: boolean;
        };
        /** @enum {string} */
        SnapshotKind: "frequent" | "hourly" | "daily" | "weekly" | "monthly" | "yearly";
        RunSnapshotSchedules: {
            /** @default [] */
            datasets: string[];
            /** @default false */
            dry_run: boolean;
            /** @default null */
            command: string | null;
        };
        SnapshotsScheduled: {
            taken: string[];
            destroyed: string[];
            in_use: string[];
            failed: components["schemas"]["ApiError"][];
        };
        ListShares: {
            /** @default [] */
            names: string[];
        };
        Listed6: {
            entries: components["schemas"]["VolumeShares"][];
            failed: components["schemas"]["ApiError"][];
        };
        VolumeShares: {
            name: string;
            through: components["schemas"]["SharedThrough"][];
            fault?: string | null;
            waiting?: components["schemas"]["WaitingRequest"][];
        };
        SharedThrough: {
            protocol: string;
            uris: string[];
            initiators: string[];
            addresses: string[];
            /** Format: uint32 */
            sector_bytes: number;
            /** Format: uint8 */
            threshold_percent: number;
            fault?: string | null;
            /** @default [] */
            not_listening: string[];
        };
        WaitingRequest: {
            /** @default  */
            protocol: string;
            client?: string | null;
            /** @default  */
            what: string;
            /**
             * Format: uint64
             * @default 0
             */
            offset: number;
            /**
             * Format: uint64
             * @default 0
             */
            length: number;
            /**
             * Format: uint64
             * @default 0
             */
            seconds: number;
            /** @default  */
            waits_for: string;
        };
        InjectFault: {
            /** @default  */
            pool: string;
            /** @default null */
            target: components["schemas"]["InjectTarget"] | null;
            /**
             * Format: uint32
             * @default 0
             */
            frequency: number;
            /** @default false */
            force: boolean;
            /** @default false */
            empty_cache: boolean;
        };
        InjectTarget: {
            device: {
                device: string;
                error: components["schemas"]["DeviceError"];
                operation: components["schemas"]["InjectedOperation"];
                label?: components["schemas"]["LabelPart"] | null;
            };
        } | {
            delay: {
                device: string;
                /** Format: uint64 */
                latency_ms: number;
                /** Format: uint */
                lanes: number;
                operation: components["schemas"]["InjectedOperation"];
            };
        } | {
            gone: {
                device: string;
            };
        } | {
            declare: {
                device: string;
                faulted: boolean;
            };
        } | "ignore-writes" | {
            blocks: {
                blocks: components["schemas"]["Blocks"];
                what: components["schemas"]["BlockFault"];
            };
        } | {
            file: {
                path: string;
                dnode: boolean;
                /** Format: int64 */
                level: number;
                range?: [
                    number,
                    number
                ] | null;
                /** Format: uint8 */
                copies: number;
                what: components["schemas"]["BlockFault"];
            };
        };
        /** @enum {string} */
        DeviceError: "io" | "nxio" | "checksum" | "corrupt" | "noop";
        /** @enum {string} */
        InjectedOperation: "read" | "write" | "trim" | "flush" | "probe" | "all";
        /** @enum {string} */
        LabelPart: "pad1" | "pad2" | "nvlist" | "uber";
        Blocks: {
            /** Format: uint64 */
            objset: number;
            /** Format: uint64 */
            object?: number | null;
            /** Format: int64 */
            level?: number | null;
            blocks: [
                number,
                number
            ];
            /** Format: uint8 */
            copies: number;
        };
        BlockFault: {
            read: components["schemas"]["BlockError"];
        } | {
            flip: components["schemas"]["Flip"];
        };
        /** @enum {string} */
        BlockError: "io" | "checksum" | "decompress";
        /** @enum {string} */
        Flip: "before-checksum" | "after-checksum" | "before-check" | "after-check";
        ListInjections: Record<string, never>;
        Injection: {
            /** Format: uint64 */
            id: number;
            pool: string;
            fault: components["schemas"]["Fault"];
            device?: string | null;
            /** Format: uint32 */
            frequency: number;
            /** Format: uint64 */
            matched: number;
            /** Format: uint64 */
            injected: number;
        };
        Fault: {
            device: {
                /** Format: uint64 */
                leaf: number;
                error: components["schemas"]["DeviceError"];
                operation: components["schemas"]["InjectedOperation"];
                label?: components["schemas"]["LabelPart"] | null;
            };
        } | {
            delay: {
                /** Format: uint64 */
                leaf: number;
                latency: components["schemas"]["Duration"];
                /** Format: uint */
                lanes: number;
                operation: components["schemas"]["InjectedOperation"];
            };
        } | {
            gone: {
                /** Format: uint64 */
                leaf: number;
            };
        } | {
            block: {
                blocks: components["schemas"]["Blocks"];
                error: components["schemas"]["BlockError"];
            };
        } | {
            memory: {
                blocks: components["schemas"]["Blocks"];
                flip: components["schemas"]["Flip"];
            };
        };
        Duration: {
            /** Format: uint64 */
            secs: number;
            /** Format: uint32 */
            nanos: number;
        };
        ClearInjections: {
            /**
             * Format: uint64
             * @default null
             */
            id: number | null;
        };
        GetWhatIf: {
            /** @default [] */
            pools: string[];
        };
        Listed7: {
            entries: components["schemas"]["PoolWhatIf"][];
            failed: components["schemas"]["ApiError"][];
        };
        PoolWhatIf: {
            name: string;
            /** Format: uint64 */
            arc_bytes: number;
            /** Format: uint64 */
            arc_max_bytes: number;
            curves: components["schemas"]["Curve"][];
        };
        Curve: {
            dataset?: string | null;
            /** Format: double */
            samples: number;
            /** Format: double */
            rate: number;
            /**
             * Format: uint64
             * @default 0
             */
            followed_blocks: number;
            /**
             * Format: double
             * @default 0
             */
            passes: number;
            /**
             * @default {
             *       "hit_ratio": 0,
             *       "least": 0,
             *       "most": 0,
             *       "trust": "low"
             *     }
             */
            now: components["schemas"]["Prediction"];
            /** Format: uint64 */
            distinct_blocks: number;
            /** Format: uint64 */
            distinct_bytes: number;
            /** Format: uint64 */
            distinct_stored_bytes: number;
            /** Format: uint64 */
            distinct_metadata_bytes: number;
            /** Format: double */
            metadata_share: number;
            points: components["schemas"]["Points"];
            /** @default [] */
            least_points: components["schemas"]["Points"];
            metadata_points: components["schemas"]["Points"];
        };
        Prediction: {
            /** Format: double */
            hit_ratio: number;
            /** Format: double */
            least: number;
            /** Format: double */
            most: number;
            trust: components["schemas"]["Trust"];
        };
        /** @enum {string} */
        Trust: "low" | "fair" | "good";
        Points: [
            number,
            number
        ][];
        ListTunables: {
            /** @default [] */
            names: string[];
        };
        TunableValue: {
            name: string;
            /** Format: uint64 */
            value: number;
            /** Format: uint64 */
            default: number;
            is_set: boolean;
            /** Format: uint64 */
            least: number;
            /** Format: uint64 */
            most: number;
            unit: components["schemas"]["Unit"];
            effect: components["schemas"]["Effect"];
            text: string;
        };
        /** @enum {string} */
        Unit: "switch" | "count" | "bytes" | "bytes-per-second" | "percent" | "seconds" | "milliseconds" | "groups";
        /** @enum {string} */
        Effect: "at-once" | "for-new" | "at-import";
        SetTunables: {
            settings: [
                string,
                string | null
            ][];
            /** @default false */
            save: boolean;
        };
        ListHooks: Record<string, never>;
        Hook: {
            name: string;
            events: string[];
            action: components["schemas"]["HookAction"];
            /**
             * Format: uint64
             * @default null
             */
            limit_s: number | null;
            secret?: string | null;
            /** @default false */
            has_secret: boolean;
        };
        HookAction: {
            command: string;
        } | {
            webhook: string;
        } | {
            mail: components["schemas"]["Mail"];
        } | {
            ntfy: components["schemas"]["Ntfy"];
        };
        Mail: {
            relay: string;
            from: string;
            to: string[];
        };
        Ntfy: {
            url: string;
            /**
             * Format: uint8
             * @default null
             */
            priority: number | null;
        };
        AddHook: {
            hook: components["schemas"]["Hook"];
        };
        RemoveHook: {
            name: string;
        };
        TestHook: {
            name: string;
            dry_run: boolean;
        };
        HookTested: {
            hook: components["schemas"]["Hook"];
            environment: [
                string,
                string
            ][];
            /** @default null */
            message: string | null;
            outcome?: string | null;
        };
        TakeTrace: {
            /** @default  */
            volume: string;
            /** @default false */
            stop: boolean;
        };
        Traced: {
            requests: components["schemas"]["TracedRequest"][];
            /** Format: uint64 */
            lost: number;
        };
        TracedRequest: {
            /** Format: uint64 */
            at_us: number;
            operation: components["schemas"]["TracedOperation"];
            /** Format: uint64 */
            offset: number;
            /** Format: uint64 */
            length: number;
        };
        /** @enum {string} */
        TracedOperation: "read" | "write" | "trim" | "flush";
        GetCounters: {
            /** @default [] */
            groups: string[];
            /** @default [] */
            pools: string[];
        };
        Counters: {
            /** Format: uint64 */
            time_ns: number;
            groups: components["schemas"]["CounterGroup"][];
            /** @default [] */
            txgs: components["schemas"]["PoolTxgs"][];
            /** @default [] */
            clients: components["schemas"]["Client"][];
            /** @default [] */
            failed: components["schemas"]["Failed"][];
        };
        CounterGroup: {
            name: string;
            pool?: string | null;
            dataset?: components["schemas"]["CountedDataset"] | null;
            vdev?: components["schemas"]["CountedVdev"] | null;
            counters: components["schemas"]["Numbers"];
        };
        CountedDataset: {
            name?: string | null;
            /** Format: uint64 */
            objset: number;
        };
        CountedVdev: {
            name: string;
            guid: string;
            is_leaf: boolean;
        };
        Numbers: {
            [key: string]: number;
        };
        PoolTxgs: {
            pool: string;
            txgs: components["schemas"]["TxgTimes"][];
        };
        TxgTimes: {
            /** Format: uint64 */
            txg: number;
            /** Format: uint64 */
            birth_ns: number;
            state: string;
            /** Format: uint64 */
            ndirty: number;
            /** Format: uint64 */
            nread: number;
            /** Format: uint64 */
            nwritten: number;
            /** Format: uint64 */
            reads: number;
            /** Format: uint64 */
            writes: number;
            /** Format: uint64 */
            otime_ns: number;
            /** Format: uint64 */
            qtime_ns: number;
            /** Format: uint64 */
            wtime_ns: number;
            /** Format: uint64 */
            stime_ns: number;
        };
        Client: {
            kind: string;
            /** Format: uint64 */
            id: number;
            pool: string;
            dataset: string;
            client?: string | null;
            mountpoint?: string | null;
            counters: components["schemas"]["Numbers"];
            waiting?: components["schemas"]["WaitingRequest"][];
        };
        Failed: {
            message: string;
        };
        GetIoStats: {
            /** @default [] */
            pools: string[];
        };
        Listed8: {
            entries: components["schemas"]["PoolIo"][];
            failed: components["schemas"]["ApiError"][];
        };
        PoolIo: {
            name: string;
            guid: string;
            /** Format: uint64 */
            age_ns: number;
            vdevs: components["schemas"]["VdevNode"];
            /** @default null */
            suspended: string | null;
            /** @default null */
            written: components["schemas"]["Written"] | null;
            counters: components["schemas"]["VdevIo"][];
        };
        Written: {
            /** Format: uint64 */
            logical_bytes: number;
            /** Format: uint64 */
            compressed_bytes: number;
            /** Format: uint64 */
            allocated_bytes: number;
            /**
             * Format: uint64
             * @default 0
             */
            device_bytes: number;
            /** Format: uint64 */
            metadata_bytes: number;
            /**
             * Format: uint64
             * @default 0
             */
            metadata_device_bytes: number;
            /** Format: uint64 */
            log_bytes: number;
            /**
             * Format: uint64
             * @default 0
             */
            log_device_bytes: number;
        };
        VdevIo: {
            guid: string;
            read: components["schemas"]["Transfers"];
            /**
             * @default {
             *       "operations": 0,
             *       "bytes": 0,
             *       "total_ns": 0,
             *       "latency": [],
             *       "total_latency": [],
             *       "sizes": []
             *     }
             */
            scrub: components["schemas"]["Transfers"];
            write: components["schemas"]["Transfers"];
            /**
             * @default {
             *       "operations": 0,
             *       "bytes": 0,
             *       "total_ns": 0,
             *       "latency": [],
             *       "total_latency": [],
             *       "sizes": []
             *     }
             */
            sync_write: components["schemas"]["Transfers"];
            flush: components["schemas"]["Transfers"];
            trim: components["schemas"]["Transfers"];
            under_way: components["schemas"]["ActiveTransfers"];
            /**
             * @default {
             *       "waited": [],
             *       "joined": []
             *     }
             */
            async_queue: components["schemas"]["Queued"];
            /**
             * @default {
             *       "waited": [],
             *       "joined": []
             *     }
             */
            sync_queue: components["schemas"]["Queued"];
        };
        Transfers: {
            /** Format: uint64 */
            operations: number;
            /** Format: uint64 */
            bytes: number;
            /**
             * Format: uint64
             * @default 0
             */
            total_ns: number;
            latency: number[];
            /** @default [] */
            total_latency: number[];
            sizes: number[];
        };
        ActiveTransfers: {
            /**
             * Format: uint64
             * @default 0
             */
            sync_read: number;
            /**
             * Format: uint64
             * @default 0
             */
            sync_write: number;
            /**
             * Format: uint64
             * @default 0
             */
            async_write: number;
            /**
             * Format: uint64
             * @default 0
             */
            scrub: number;
            /**
             * Format: uint64
             * @default 0
             */
            trim: number;
            /**
             * Format: uint64
             * @default 0
             */
            async_write_pending: number;
        };
        Queued: {
            /** @default [] */
            waited: number[];
            /** @default [] */
            joined: number[];
        };
        ListPools: {
            /** @default [] */
            pools: string[];
            /** @default [] */
            properties: string[];
            /** @default false */
            vdevs: boolean;
        };
        Listed9: {
            entries: components["schemas"]["PoolEntry"][];
            failed: components["schemas"]["ApiError"][];
        };
        PoolEntry: {
            name: string;
            guid: string;
            state: components["schemas"]["State"];
            /** @default false */
            suspended: boolean;
            /** Format: uint64 */
            txg: number;
            /** Format: uint64 */
            version: number;
            properties: components["schemas"]["Property"][];
            vdevs?: components["schemas"]["VdevNode"] | null;
        };
        Property: {
            name: string;
            value?: string | null;
            parsable?: string | null;
            source: components["schemas"]["Source"];
            received?: string | null;
            received_parsable?: string | null;
        };
        ListVdevs: {
            /** @default  */
            pool: string;
            /** @default [] */
            vdevs: string[];
            /** @default [] */
            properties: string[];
        };
        Listed10: {
            entries: components["schemas"]["VdevEntry"][];
            failed: components["schemas"]["ApiError"][];
        };
        VdevEntry: {
            vdev: components["schemas"]["VdevNode"];
            properties: components["schemas"]["Property"][];
        };
        GetStatus: {
            /** @default [] */
            pools: string[];
            /** @default false */
            files: boolean;
            /** @default false */
            dedup: boolean;
            /** @default false */
            dedup_cached: boolean;
        };
        Listed11: {
            entries: components["schemas"]["PoolStatus"][];
            failed: components["schemas"]["ApiError"][];
        };
        PoolStatus: {
            name: string;
            guid: string;
            /** Format: uint64 */
            txg: number;
            /** Format: uint64 */
            version: number;
            state: components["schemas"]["State"];
            reason: components["schemas"]["Reason"];
            /** Format: uint64 */
            errata: number;
            vdevs: components["schemas"]["VdevNode"];
            scan?: components["schemas"]["Scan"] | null;
            /** @default null */
            error_scrub: components["schemas"]["Scan"] | null;
            /** @default false */
            looks_for_resilver: boolean;
            /** @default false */
            gives_up_device: boolean;
            /** @default false */
            detaches: boolean;
            removal?: components["schemas"]["Removal"] | null;
            expansion?: components["schemas"]["Expansion"] | null;
            checkpoint?: components["schemas"]["Checkpoint"] | null;
            /** Format: uint64 */
            error_count: number;
            error_files: string[];
            /** @default [] */
            damaged: components["schemas"]["DamagedRange"][];
            dedup?: components["schemas"]["Dedup"] | null;
            /** @default [] */
            sweeps: components["schemas"]["Sweeping"][];
            /** @default null */
            counting: components["schemas"]["Counting"] | null;
            /** @default null */
            pruning: components["schemas"]["Pruning"] | null;
            /** @default [] */
            reshapes: components["schemas"]["Reshaping"][];
        };
        Scan: {
            kind: components["schemas"]["ScanKind"];
            state: components["schemas"]["Progress"];
            /** Format: uint64 */
            start_time: number;
            /** Format: uint64 */
            end_time: number;
            /** Format: uint64 */
            to_examine: number;
            /** Format: uint64 */
            examined: number;
            /** Format: uint64 */
            skipped: number;
            /** Format: uint64 */
            processed: number;
            /** Format: uint64 */
            errors: number;
            /** Format: uint64 */
            paused_time?: number | null;
            /**
             * Format: uint64
             * @default 0
             */
            issued: number;
            /**
             * Format: uint64
             * @default 0
             */
            pass_start: number;
            /**
             * Format: uint64
             * @default 0
             */
            pass_spent_paused: number;
            /**
             * Format: uint64
             * @default 0
             */
            pass_examined: number;
            /**
             * Format: uint64
             * @default 0
             */
            pass_issued: number;
            /**
             * Format: uint64
             * @default null
             */
            rate: number | null;
        };
        /** @enum {string} */
        ScanKind: "none" | "scrub" | "resilver" | "error-scrub";
        /** @enum {string} */
        Progress: "none" | "running" | "finished" | "canceled";
        Removal: {
            state: components["schemas"]["Progress"];
            /** Format: uint64 */
            vdev: number;
            /** Format: uint64 */
            start_time: number;
            /** Format: uint64 */
            end_time: number;
            /** Format: uint64 */
            to_copy: number;
            /** Format: uint64 */
            copied: number;
            /** Format: uint64 */
            mapping_memory: number;
        };
        Expansion: {
            state: components["schemas"]["Progress"];
            /** Format: uint64 */
            vdev: number;
            /** Format: uint64 */
            start_time: number;
            /** Format: uint64 */
            end_time: number;
            /** Format: uint64 */
            to_reflow: number;
            /** Format: uint64 */
            reflowed: number;
            waiting_for_resilver: boolean;
        };
        Checkpoint: {
            /** Format: uint64 */
            start_time: number;
            /** Format: uint64 */
            space: number;
            /** @default false */
            discarding: boolean;
        };
        DamagedRange: {
            file: string;
            /** Format: uint64 */
            offset: number;
            /** Format: uint64 */
            length: number;
        };
        Dedup: {
            /** Format: uint64 */
            entries: number;
            /** Format: uint64 */
            bytes_on_disk: number;
            /** Format: uint64 */
            bytes_in_core: number;
            /**
             * Format: uint64
             * @default null
             */
            bytes_cached: number | null;
            /**
             * Format: uint64
             * @default 0
             */
            logged_entries: number;
            /**
             * Format: uint64
             * @default 0
             */
            flushing_entries: number;
            histogram: components["schemas"]["DedupRow"][];
        };
        DedupRow: {
            /** Format: uint32 */
            log2_references: number;
            /** Format: uint64 */
            blocks: number;
            /** Format: uint64 */
            lsize: number;
            /** Format: uint64 */
            psize: number;
            /** Format: uint64 */
            dsize: number;
            /** Format: uint64 */
            referenced_blocks: number;
            /** Format: uint64 */
            referenced_lsize: number;
            /** Format: uint64 */
            referenced_psize: number;
            /** Format: uint64 */
            referenced_dsize: number;
        };
        Sweeping: {
            guid: string;
            work: components["schemas"]["Sweep"];
            state: components["schemas"]["SweepState"];
            /** Format: uint64 */
            done_bytes: number;
            /** Format: uint64 */
            total_bytes: number;
            /** Format: uint64 */
            time: number;
        };
        /** @enum {string} */
        SweepState: "active" | "suspended" | "complete" | "canceled";
        Counting: {
            filesystem: string;
            /** Format: uint64 */
            start_time: number;
            /** Format: uint64 */
            to_count: number;
            /** Format: uint64 */
            counted: number;
            /** Format: uint64 */
            waiting: number;
        };
        Pruning: {
            /** Format: uint64 */
            start_time: number;
            /** Format: uint64 */
            to_look_at: number;
            /** Format: uint64 */
            looked_at: number;
            /** Format: uint64 */
            pruned: number;
            /** Format: uint64 */
            waiting: number;
        };
        Reshaping: {
            volume: string;
            copy: string;
            kept?: string | null;
            /** Format: uint64 */
            old_volblocksize: number;
            /** Format: uint64 */
            new_volblocksize: number;
            state: components["schemas"]["ReshapeState"];
            /** Format: uint32 */
            pass: number;
            /** Format: uint64 */
            done_bytes: number;
            /** Format: uint64 */
            total_bytes: number;
            /** Format: uint64 */
            bytes_per_second?: number | null;
            /** Format: uint64 */
            seconds_left?: number | null;
            /** Format: uint64 */
            last_pass_milliseconds?: number | null;
            /** Format: uint64 */
            start_time: number;
            error?: string | null;
        };
        /** @enum {string} */
        ReshapeState: "active" | "paused" | "complete" | "canceled";
        PoolHistory: {
            /** @default [] */
            pools: string[];
            /** @default false */
            internal: boolean;
            /** @default false */
            long: boolean;
        };
        Listed12: {
            entries: components["schemas"]["History"][];
            failed: components["schemas"]["ApiError"][];
        };
        History: {
            pool: string;
            records: components["schemas"]["HistoryRecord"][];
        };
        HistoryRecord: {
            /** Format: uint64 */
            time?: number | null;
            text: string;
        };
        ListDatasets: {
            /** @default [] */
            names: string[];
            /**
             * Format: uint
             * @default null
             */
            depth: number | null;
            /** @default [] */
            kinds: components["schemas"]["DatasetKind"][];
            /** @default false */
            pass_over: boolean;
            /** @default [] */
            properties: string[];
            after?: string | null;
            /** Format: uint */
            limit?: number | null;
            /** @default false */
            newest_first: boolean;
        };
        /** @enum {string} */
        DatasetKind: "filesystem" | "volume" | "snapshot" | "bookmark";
        DatasetPage: {
            /** @default [] */
            entries: components["schemas"]["DatasetEntry"][];
            /** @default [] */
            failed: components["schemas"]["ApiError"][];
            next?: string | null;
        };
        DatasetEntry: {
            name: string;
            kind: components["schemas"]["DatasetKind"];
            /** Format: uint64 */
            createtxg: number;
            properties: components["schemas"]["Property"][];
        };
        CreateDataset: {
            /** @default  */
            name: string;
            /**
             * Format: uint64
             * @default null
             */
            volume_bytes: number | null;
            /** @default false */
            sparse: boolean;
            /** @default false */
            parents: boolean;
            /** @default [] */
            properties: [
                string,
                string
            ][];
            /** @default null */
            key: number[] | null;
            /** @default false */
            no_mount: boolean;
            /** @default false */
            dry_run: boolean;
            /** @default null */
            command: string | null;
        };
        Created: {
            /** @default false */
            created: boolean;
            /** @default [] */
            parents: string[];
            /** @default [] */
            properties: [
                string,
                string
            ][];
            /** @default [] */
            warnings: string[];
            /** @default [] */
            unmounted: string[];
        };
        CloneSnapshot: {
            /** @default  */
            snapshot: string;
            /** @default  */
            target: string;
            /** @default false */
            parents: boolean;
            /** @default false */
            no_mount: boolean;
            /** @default [] */
            properties: [
                string,
                string
            ][];
            /** @default null */
            command: string | null;
        };
        DestroyDataset: {
            /** @default  */
            name: string;
            /** @default false */
            recursive: boolean;
            /** @default false */
            clones: boolean;
            /** @default false */
            force: boolean;
            /** @default false */
            defer: boolean;
            /** @default false */
            dry_run: boolean;
            /** @default null */
            command: string | null;
        };
        Destroyed: {
            /** @default [] */
            names: string[];
            /**
             * Format: uint64
             * @default null
             */
            reclaimed_bytes: number | null;
        };
        RenameDataset: {
            /** @default  */
            from: string;
            /** @default  */
            to: string;
            /** @default false */
            parents: boolean;
            /** @default false */
            recursive: boolean;
            /** @default false */
            no_remount: boolean;
            /** @default false */
            force: boolean;
            /** @default null */
            command: string | null;
        };
        Promote: {
            /** @default  */
            dataset: string;
            /** @default null */
            command: string | null;
        };
        AbortReceive: {
            /** @default  */
            name: string;
            /** @default null */
            command: string | null;
        };
        TakeSnapshots: {
            /** @default [] */
            names: string[];
            /** @default false */
            recursive: boolean;
            /** @default [] */
            properties: [
                string,
                string
            ][];
            /** @default null */
            command: string | null;
        };
        Rollback: {
            /** @default  */
            snapshot: string;
            /** @default false */
            destroy_later: boolean;
            /** @default false */
            destroy_clones: boolean;
            /** @default false */
            force: boolean;
            /** @default null */
            command: string | null;
        };
        HoldSnapshots: {
            /** @default  */
            tag: string;
            /** @default [] */
            snapshots: string[];
            /** @default false */
            recursive: boolean;
            /** @default false */
            release: boolean;
            /** @default null */
            command: string | null;
        };
        CreateBookmark: {
            /** @default  */
            source: string;
            /** @default  */
            bookmark: string;
            /** @default null */
            command: string | null;
        };
        SetProperties: {
            /** @default [] */
            datasets: string[];
            /** @default [] */
            properties: [
                string,
                string
            ][];
            /** @default false */
            no_mount: boolean;
            /** @default null */
            command: string | null;
        };
        PropertiesSet: {
            /** @default [] */
            failed: components["schemas"]["ApiError"][];
            /** @default [] */
            warnings: string[];
        };
        InheritProperty: {
            /** @default  */
            property: string;
            /** @default [] */
            datasets: string[];
            /** @default false */
            recursive: boolean;
            /** @default false */
            received: boolean;
            /** @default null */
            command: string | null;
        };
        ListSpace: {
            /** @default  */
            dataset: string;
            /** @default user */
            owner: components["schemas"]["Owner"];
        };
        /** @enum {string} */
        Owner: "user" | "group" | "project";
        SpaceOf: {
            /** Format: uint64 */
            id: number;
            name?: string | null;
            /** Format: uint64 */
            used: number;
            /** Format: uint64 */
            quota: number;
            /** Format: uint64 */
            objects?: number | null;
            /** Format: uint64 */
            object_quota: number;
        };
        ListBlocks: {
            /** @default  */
            dataset: string;
            /** @default [] */
            files: number[];
            /**
             * Format: uint64
             * @default 0
             */
            first_block: number;
        };
        ListedBlocks: {
            /** Format: uint64 */
            file?: number | null;
            /** Format: uint64 */
            block_bytes: number;
            blocks: components["schemas"]["ListedBlock"][];
            /** Format: uint64 */
            next_block?: number | null;
            error?: string | null;
        };
        ListedBlock: {
            /** Format: uint64 */
            block: number;
            /** Format: uint64 */
            digest: number;
            /** Format: uint64 */
            place: number;
            /** Format: uint64 */
            birth: number;
            /** Format: uint64 */
            allocated_bytes: number;
        };
        ShareBlocks: {
            /** @default [] */
            pairs: components["schemas"]["BlockPair"][];
        };
        BlockPair: {
            kept: components["schemas"]["BlockPlace"];
            other: components["schemas"]["BlockPlace"];
            /** Format: uint64 */
            blocks: number;
        };
        BlockPlace: {
            dataset: string;
            /** Format: uint64 */
            file?: number | null;
            /** Format: uint64 */
            block: number;
        };
        PairShared: {
            /** Format: uint64 */
            shared_blocks: number;
            /** Format: uint64 */
            allocated_bytes: number;
            /** Format: uint64 */
            already_blocks: number;
            /** Format: uint64 */
            different_blocks: number;
            error?: string | null;
        };
        GetActivity: {
            /** @default  */
            dataset: string;
        };
        Activity: {
            /**
             * Format: uint64
             * @default 0
             */
            delete_queue: number;
        };
        ListFiles: {
            /** @default  */
            dataset: string;
            /** @default  */
            path: string;
            /** @default null */
            after: string | null;
            /**
             * Format: uint
             * @default 0
             */
            limit: number;
        };
        FileList: {
            /** @default [] */
            entries: components["schemas"]["FileEntry"][];
            /** @default null */
            next: string | null;
        };
        FileEntry: {
            name: string;
            is_exact: boolean;
            kind: components["schemas"]["FileKind"];
            /** Format: uint64 */
            size: number;
            /** Format: int64 */
            modified: number;
            /** Format: uint32 */
            mode: number;
            /** Format: uint32 */
            uid: number;
            /** Format: uint32 */
            gid: number;
        };
        /** @enum {string} */
        FileKind: "directory" | "file" | "symlink" | "other" | "unknown";
        RestoreFile: {
            /** @default  */
            snapshot: string;
            /** @default  */
            path: string;
            /** @default null */
            to: string | null;
            /** @default false */
            overwrite: boolean;
            /** @default false */
            keep: boolean;
            /** @default null */
            after: string | null;
        };
        RestoredFile: {
            /** @default  */
            path: string;
            /**
             * Format: uint64
             * @default 0
             */
            size: number;
            /**
             * Format: uint64
             * @default 0
             */
            files: number;
            /**
             * Format: uint64
             * @default 0
             */
            folders: number;
            /**
             * Format: uint64
             * @default 0
             */
            kept: number;
            /**
             * Format: uint64
             * @default 0
             */
            passed_over: number;
            /** @default null */
            next: string | null;
        };
        ListHolds: {
            /** @default [] */
            snapshots: string[];
            /** @default false */
            recursive: boolean;
        };
        Listed13: {
            entries: components["schemas"]["Hold"][];
            failed: components["schemas"]["ApiError"][];
        };
        Hold: {
            snapshot: string;
            tag: string;
            /** Format: uint64 */
            time: number;
        };
        AllowPermissions: {
            /** @default  */
            dataset: string;
            /** @default everyone */
            to: components["schemas"]["Grantees"];
            /** @default false */
            local: boolean;
            /** @default false */
            descendent: boolean;
            /** @default [] */
            permissions: string[];
            /** @default null */
            command: string | null;
        };
        Grantees: {
            named: string[];
        } | {
            users: string[];
        } | {
            groups: string[];
        } | "everyone" | "creator" | {
            set: string;
        };
        UnallowPermissions: {
            /** @default  */
            dataset: string;
            /** @default everyone */
            from: components["schemas"]["Grantees"];
            /** @default false */
            local: boolean;
            /** @default false */
            descendent: boolean;
            /** @default [] */
            permissions: string[];
            /** @default false */
            recursive: boolean;
            /** @default null */
            command: string | null;
        };
        ListPermissions: {
            /** @default  */
            dataset: string;
        };
        GrantedBy: {
            /** @default  */
            dataset: string;
            /** @default [] */
            grants: components["schemas"]["Granted"][];
        };
        Granted: {
            to: components["schemas"]["Grantee"];
            local: boolean;
            descendent: boolean;
            permissions: string[];
        };
        Grantee: {
            set: string;
        } | "creator" | {
            user: [
                number,
                string | null
            ];
        } | {
            group: [
                number,
                string | null
            ];
        } | "everyone";
        LoadKey: {
            /** @default  */
            dataset: string;
            /** @default null */
            key: number[] | null;
            /** @default null */
            location: string | null;
            /** @default false */
            dry_run: boolean;
        };
        KeyLoaded: {
            /** Format: uint64 */
            datasets: number;
            warnings: string[];
        };
        UnloadKey: {
            /** @default  */
            dataset: string;
        };
        ChangeKey: {
            /** @default  */
            dataset: string;
            /** @default false */
            inherit: boolean;
            /** @default null */
            key: number[] | null;
            /** @default [] */
            properties: [
                string,
                string
            ][];
            /** @default false */
            dry_run: boolean;
            /** @default null */
            command: string | null;
        };
        ListKeys: {
            /** @default null */
            dataset: string | null;
            /** @default false */
            recursive: boolean;
        };
        KeyEntry: {
            dataset: string;
            format: string;
            location: string;
            loaded: boolean;
        };
        Mount: {
            /** @default null */
            dataset: string | null;
            /** @default null */
            pool: string | null;
            /** @default null */
            at: string | null;
            /** @default [] */
            options: string[];
            /** @default false */
            overlay: boolean;
            /** @default false */
            load_keys: boolean;
            /** @default false */
            legacy: boolean;
            /** @default false */
            recursive: boolean;
        };
        MountsChanged: {
            done: components["schemas"]["Mounted"][];
            failed: components["schemas"]["ApiError"][];
            warnings: string[];
        };
        Unmount: {
            /** @default null */
            target: string | null;
            /** @default false */
            force: boolean;
            /** @default false */
            unload_keys: boolean;
        };
        ListMounts: Record<string, never>;
        ShareFilesystems: {
            /** @default null */
            dataset: string | null;
            /** @default null */
            protocol: components["schemas"]["ShareProtocol"] | null;
        };
        /** @enum {string} */
        ShareProtocol: "nfs" | "smb";
        SharesChanged: {
            done: string[];
            failed: components["schemas"]["ApiError"][];
            warnings: string[];
        };
        UnshareFilesystems: {
            /** @default null */
            target: string | null;
            /** @default null */
            protocol: components["schemas"]["ShareProtocol"] | null;
        };
        ListNfs: Record<string, never>;
        NfsListing: {
            addresses: string[];
            waiting: string[];
            shares: components["schemas"]["NfsShare"][];
            clients: components["schemas"]["NfsClient"][];
            procedures: components["schemas"]["NfsProcedure"][];
            /** Format: uint64 */
            read_bytes: number;
            /** Format: uint64 */
            written_bytes: number;
        };
        NfsShare: {
            dataset: string;
            path: string;
            options: string;
            fault?: string | null;
        };
        NfsClient: {
            /** Format: ip */
            address: string;
            /** Format: uint */
            connections: number;
            mounts: string[];
            /** Format: uint64 */
            requests: number;
            /** Format: uint64 */
            read_bytes: number;
            /** Format: uint64 */
            written_bytes: number;
            /** Format: uint64 */
            last_seconds: number;
        };
        NfsProcedure: {
            name: string;
            /** Format: uint64 */
            requests: number;
            /** Format: uint64 */
            errors: number;
        };
        AttachVolume: {
            /** @default  */
            volume: string;
            /** @default null */
            through: components["schemas"]["Through"] | null;
        };
        /** @enum {string} */
        Through: "ublk" | "nbd";
        AttachedVolume: {
            volume: string;
            through: components["schemas"]["Through"];
            node: string;
            link: string;
        };
        DetachVolume: {
            /** @default  */
            volume: string;
            /** @default false */
            force: boolean;
        };
        ListAttached: Record<string, never>;
        ReshapeVolume: {
            /** @default  */
            volume: string;
            /** @default start */
            action: components["schemas"]["ReshapeAction"];
            /**
             * Format: uint64
             * @default 0
             */
            volblocksize: number;
            /** @default false */
            dry_run: boolean;
            /** @default null */
            command: string | null;
        };
        /** @enum {string} */
        ReshapeAction: "start" | "pause" | "resume" | "cancel";
        ReshapePlan: {
            volume: string;
            copy: string;
            kept: string;
            /** Format: uint64 */
            old_volblocksize: number;
            /** Format: uint64 */
            new_volblocksize: number;
            /** Format: uint64 */
            data_bytes: number;
            /** Format: uint64 */
            needed_bytes: number;
            /** Format: uint64 */
            available_bytes: number;
            time?: components["schemas"]["ReshapeTime"] | null;
        };
        ReshapeTime: {
            /** Format: uint64 */
            seconds: number;
            /** Format: uint64 */
            sampled_bytes: number;
            /** Format: uint64 */
            bytes_per_second: number;
        };
        ListReshapes: {
            /** @default [] */
            volumes: string[];
        };
        ListVolumes: Record<string, never>;
        ListLabRecipes: Record<string, never>;
        LabRecipe: {
            /** @default  */
            name: string;
            /** @default  */
            about: string;
            /** @default  */
            question: string;
            /** @default  */
            target: string;
            /** @default [] */
            workloads: string[];
            /** @default [] */
            factors: [
                string,
                string[]
            ][];
        };
        ListLabPresets: Record<string, never>;
        LabPreset: {
            /** @default  */
            name: string;
            /** @default  */
            about: string;
        };
        DraftLab: {
            /** @default null */
            recipe: string | null;
            /** @default null */
            name: string | null;
            /** @default null */
            target: string | null;
            /** @default null */
            size: string | null;
            /** @default [] */
            workloads: string[];
            /** @default null */
            goal: string | null;
            /** @default null */
            at_least: string | null;
            /** @default null */
            at_most: string | null;
            /** @default [] */
            bounds: string[];
            /** @default [] */
            factors: [
                string,
                string
            ][];
            /** @default null */
            mode: string | null;
            /** @default null */
            layout: string | null;
        };
        LabDraft: {
            /** @default  */
            experiment: string;
            /** @default [] */
            remarks: string[];
        };
        PlanLab: {
            /** @default  */
            experiment: string;
            /** @default false */
            quick: boolean;
            /**
             * Format: uint32
             * @default null
             */
            rounds: number | null;
        };
        LabPlan: {
            /** @default [] */
            faults: string[];
            /** @default [] */
            remarks: string[];
            /** @default [] */
            variants: string[];
            /** @default [] */
            workloads: string[];
            /**
             * Format: uint64
             * @default 0
             */
            runs: number;
            /**
             * Format: double
             * @default 0
             */
            seconds: number;
            /**
             * Format: uint64
             * @default 0
             */
            space_bytes: number;
            /**
             * Format: uint64
             * @default null
             */
            memory_bytes: number | null;
        };
        StartLab: {
            /** @default  */
            name: string;
            /** @default  */
            experiment: string;
            /** @default false */
            quick: boolean;
            /**
             * Format: uint32
             * @default null
             */
            rounds: number | null;
        };
        ListLab: Record<string, never>;
        LabExperiment: {
            name: string;
            question: string;
            state: components["schemas"]["LabState"];
            /** Format: uint64 */
            began: number;
            quick: boolean;
            progress?: components["schemas"]["LabProgress"] | null;
            is_answered?: boolean | null;
            answer?: string | null;
            error?: string | null;
            /** Format: uint64 */
            space_bytes: number;
            applied: components["schemas"]["LabApplied"][];
        };
        /** @enum {string} */
        LabState: "running" | "ended" | "stopped" | "failed";
        LabProgress: {
            /**
             * Format: uint64
             * @default 0
             */
            runs: number;
            /**
             * Format: uint64
             * @default 0
             */
            of_runs: number;
            /**
             * Format: double
             * @default null
             */
            seconds_left: number | null;
            /** @default  */
            now: string;
        };
        LabApplied: {
            dataset: string;
            variant: string;
            /** Format: uint64 */
            at: number;
            changes: [
                string,
                string
            ][];
            was: [
                string,
                string | null
            ][];
        };
        StopLab: {
            /** @default  */
            name: string;
        };
        ResumeLab: {
            /** @default  */
            name: string;
            /**
             * Format: uint32
             * @default null
             */
            more_rounds: number | null;
        };
        RemoveLab: {
            /** @default  */
            name: string;
            /** @default false */
            force: boolean;
        };
        ReportLab: {
            /** @default  */
            name: string;
        };
        LabReport: {
            /** @default null */
            document: unknown;
            /** @default  */
            experiment: string;
            /** @default [] */
            verdicts: components["schemas"]["LabVerdict"][];
        };
        LabVerdict: {
            /** @default  */
            variant: string;
            /** @default  */
            text: string;
            /** @default [] */
            changes: [
                string,
                string
            ][];
            /** @default null */
            why_not: string | null;
        };
        CompareLab: {
            /** @default [] */
            names: string[];
        };
        LabComparison: {
            /** @default null */
            document: unknown;
        };
        ApplyLab: {
            /** @default  */
            name: string;
            /** @default  */
            variant: string;
            /** @default  */
            dataset: string;
            /** @default false */
            dry_run: boolean;
        };
        LabChanged: {
            /** @default [] */
            commands: string[];
            /** @default [] */
            was: [
                string,
                string | null
            ][];
            /** @default [] */
            remarks: string[];
        };
        RevertLab: {
            /** @default  */
            name: string;
            /** @default  */
            dataset: string;
        };
        LabReverted: {
            /** @default [] */
            commands: string[];
            /** @default [] */
            remarks: string[];
        };
        AdviseLab: {
            /** @default [] */
            pools: string[];
        };
        LabAdvice: {
            /** @default  */
            pool: string;
            /** @default  */
            title: string;
            /** @default  */
            evidence: string;
            /** @default  */
            gain: string;
            /** @default  */
            cost: string;
            /** @default  */
            risk: string;
            /** @default null */
            command: string | null;
            /** @default null */
            prove: string | null;
        };
        ListLabLayouts: {
            /**
             * Format: uint32
             * @default 0
             */
            disks: number;
            /**
             * Format: uint64
             * @default 0
             */
            disk_bytes: number;
            /** @default false */
            rotational: boolean;
            /**
             * Format: uint32
             * @default 0
             */
            spares: number;
        };
        LabLayout: {
            /** @default  */
            layout: string;
            /**
             * Format: uint32
             * @default 0
             */
            spares: number;
            /**
             * Format: uint64
             * @default 0
             */
            usable_bytes: number;
            /**
             * Format: uint32
             * @default 0
             */
            survives: number;
            /**
             * Format: double
             * @default null
             */
            chance_of_loss_per_year: number | null;
            /**
             * Format: double
             * @default null
             */
            rebuild_seconds: number | null;
            /**
             * Format: double
             * @default null
             */
            rebuild_seconds_at_worst: number | null;
            /**
             * Format: double
             * @default 0
             */
            read_iops: number;
            /**
             * Format: double
             * @default 0
             */
            write_iops: number;
            /**
             * Format: double
             * @default 0
             */
            read_bytes_per_second: number;
            /**
             * Format: double
             * @default 0
             */
            write_bytes_per_second: number;
            /** @default [] */
            remarks: string[];
        };
        RunLoad: {
            volume: string;
            load: components["schemas"]["Load"];
        };
        Load: {
            is_random: boolean;
            /** Format: uint32 */
            read_percent: number;
            /** Format: uint32 */
            block_bytes: number;
            /** @default [] */
            read_sizes: components["schemas"]["SizeShare"][];
            /** @default [] */
            write_sizes: components["schemas"]["SizeShare"][];
            /** Format: uint64 */
            extent_bytes: number;
            /**
             * Format: uint64
             * @default 0
             */
            offset_increment_bytes: number;
            /** Format: uint32 */
            depth: number;
            /** Format: uint32 */
            clients: number;
            /**
             * Format: uint32
             * @default 0
             */
            flush_every: number;
            /**
             * Format: double
             * @default null
             */
            zipf: number | null;
            /**
             * Format: uint32
             * @default 0
             */
            compressible_percent: number;
            /** Format: double */
            seconds: number;
            /**
             * Format: double
             * @default 0
             */
            ramp_seconds: number;
            /**
             * Format: uint32
             * @default 0
             */
            step_ms: number;
            /** Format: uint64 */
            seed: number;
        };
        SizeShare: {
            /** Format: uint32 */
            bytes: number;
            /** Format: uint32 */
            percent: number;
        };
        Loaded: {
            reads: components["schemas"]["Requested"];
            writes: components["schemas"]["Requested"];
            flushes: components["schemas"]["Requested"];
            /** Format: uint64 */
            elapsed_ns: number;
            /** @default [] */
            steps: components["schemas"]["Step"][];
        };
        Requested: {
            /** Format: uint64 */
            requests: number;
            /** Format: uint64 */
            bytes: number;
            /** Format: double */
            mean_ns: number;
            /** Format: uint64 */
            least_ns: number;
            /** Format: uint64 */
            most_ns: number;
            /** Format: uint64 */
            p50_ns: number;
            /** Format: uint64 */
            p99_ns: number;
            /** Format: uint64 */
            p999_ns: number;
            /** @default [] */
            times: [
                number,
                number
            ][];
        };
        Step: {
            /** Format: uint64 */
            requests: number;
            /** Format: uint64 */
            bytes: number;
        };
        HoldView: {
            /** @default  */
            pool: string;
        };
        HeldView: {
            name: string;
            guid: string;
            /** Format: uint64 */
            txg: number;
            uberblock: number[];
            devices: string[];
        };
        FollowChanges: {
            /** @default null */
            from: string | null;
            /** @default false */
            without_events: boolean;
            /** @default false */
            without_snapshot: boolean;
        };
        FeedMessage: {
            snapshot: components["schemas"]["Snapshot"];
        } | {
            change: components["schemas"]["Change"];
        } | {
            event: components["schemas"]["Event"];
        } | {
            figures: components["schemas"]["Figures"][];
        } | {
            missed: components["schemas"]["Missed"];
        } | {
            end: components["schemas"]["FeedEnd"];
        };
        Snapshot: {
            /** @default [] */
            pools: components["schemas"]["PoolSnapshot"][];
        };
        PoolSnapshot: {
            /** @default  */
            pool: string;
            /** @default 0 */
            pool_guid: string;
            /**
             * Format: uint64
             * @default 0
             */
            txg: number;
            /** @default  */
            state: string;
            /** @default false */
            suspended: boolean;
            /** @default false */
            read_only: boolean;
            /** @default [] */
            datasets: components["schemas"]["DatasetSnapshot"][];
            /** @default [] */
            jobs: components["schemas"]["JobFigures"][];
            error?: string | null;
        };
        DatasetSnapshot: {
            name: string;
            guid: string;
            kind: components["schemas"]["DatasetKind"];
            /** Format: uint64 */
            volume_bytes?: number | null;
        };
        JobFigures: {
            /** @default  */
            job: string;
            /**
             * Format: uint64
             * @default 0
             */
            target: number;
            /** @default  */
            state: string;
            /**
             * Format: uint64
             * @default 0
             */
            done: number;
            /**
             * Format: uint64
             * @default 0
             */
            total: number;
        };
        Change: {
            pool: string;
            pool_guid: string;
            /** Format: uint64 */
            txg: number;
        } & ({
            /** @constant */
            kind: "opened";
        } | {
            /** @constant */
            kind: "closed";
        } | {
            /** @constant */
            kind: "created";
            name: string;
            guid: string;
            /** Format: uint64 */
            volume_bytes?: number | null;
        } | {
            /** @constant */
            kind: "destroyed";
            name: string;
            guid: string;
        } | {
            /** @constant */
            kind: "renamed";
            from: string;
            to: string;
            guid: string;
        } | {
            /** @constant */
            kind: "promoted";
            name: string;
            guid: string;
        } | {
            /** @constant */
            kind: "replaced";
            name: string;
            guid: string;
        } | {
            /** @constant */
            kind: "resized";
            name: string;
            /** Format: uint64 */
            bytes: number;
        } | {
            /** @constant */
            kind: "set";
            name: string;
            guid: string;
            property: string;
        } | {
            /** @constant */
            kind: "pool-set";
            property: string;
        } | {
            /** @constant */
            kind: "configured";
        } | {
            /** @constant */
            kind: "vdev-state";
            guid: string;
            path?: string | null;
            state: string;
        } | {
            /** @constant */
            kind: "job";
            job: string;
            /** Format: uint64 */
            target: number;
            state: string;
        } | {
            /** @constant */
            kind: "suspended";
        } | {
            /** @constant */
            kind: "resumed";
        } | {
            /** @constant */
            kind: "errors";
        } | {
            /** @constant */
            kind: "served";
            name: string;
            how: string;
        });
        Figures: {
            /** @default  */
            pool: string;
            /** @default 0 */
            pool_guid: string;
            /**
             * Format: uint64
             * @default 0
             */
            txg: number;
            /**
             * Format: uint64
             * @default 0
             */
            allocated_bytes: number;
            /**
             * Format: uint64
             * @default 0
             */
            free_bytes: number;
            /**
             * Format: uint64
             * @default 0
             */
            freeing_bytes: number;
            /** @default [] */
            datasets: components["schemas"]["DatasetFigures"][];
            /** @default [] */
            jobs: components["schemas"]["JobFigures"][];
        };
        DatasetFigures: {
            /** @default  */
            name: string;
            /**
             * Format: uint64
             * @default 0
             */
            used_bytes: number;
            /**
             * Format: uint64
             * @default 0
             */
            referenced_bytes: number;
        };
        Missed: {
            why: string;
        };
        FeedEnd: {
            message: string;
        };
        CompareFiles: {
            /** @default  */
            from: string;
            /** @default null */
            to: string | null;
        };
        DiffPart: {
            begun: {
                from: string;
                to: string;
            };
        } | {
            changes: components["schemas"]["FileChange"][];
        } | {
            unreadable: string;
        } | {
            failed: components["schemas"]["ApiError"];
        } | "complete";
        FileChange: {
            kind: components["schemas"]["FileChangeKind"];
            path: components["schemas"]["FilePath"];
            new_path?: components["schemas"]["FilePath"] | null;
            /** Format: int64 */
            links: number;
            /** Format: uint32 */
            mode: number;
            /** Format: int64 */
            ctime: number;
            /** Format: uint32 */
            ctime_nanoseconds: number;
        };
        /** @enum {string} */
        FileChangeKind: "added" | "removed" | "modified" | "renamed";
        FilePath: string | number[];
        SendSnapshot: {
            /** @default  */
            snapshot: string;
            /** @default null */
            from: string | null;
            /** @default null */
            token: string | null;
            /** @default false */
            all_between: boolean;
            /** @default false */
            replicate: boolean;
            /** @default false */
            skip_missing: boolean;
            /** @default [] */
            excluded: string[];
            /** @default false */
            properties: boolean;
            /** @default false */
            backup: boolean;
            /** @default false */
            holds: boolean;
            /** @default false */
            no_preserve_encryption: boolean;
            /** @default false */
            large_blocks: boolean;
            /** @default false */
            embedded: boolean;
            /** @default false */
            compressed: boolean;
            /** @default false */
            raw: boolean;
            /** @default false */
            estimate: boolean;
            /** @default false */
            dry_run: boolean;
        };
        SendPart: {
            warning: string;
        } | {
            note: string;
        } | {
            token: string[];
        } | {
            estimated: {
                to: string;
                from?: string | null;
                /** Format: uint64 */
                bytes: number;
            };
        } | {
            begun: {
                to: string;
            };
        } | {
            failed: components["schemas"]["ApiError"];
        } | {
            complete: {
                is_partial: boolean;
            };
        };
        ReceiveStream: {
            /** @default  */
            name: string;
            /** @default below */
            appends: components["schemas"]["Appends"];
            /** @default false */
            force: boolean;
            /** @default false */
            force_unmount: boolean;
            /** @default false */
            resumable: boolean;
            /** @default false */
            dry_run: boolean;
            /** @default false */
            verbose: boolean;
            /** @default false */
            no_mount: boolean;
            /** @default false */
            skip_holds: boolean;
            /** @default null */
            origin: string | null;
            /** @default [] */
            properties: [
                string,
                string
            ][];
            /** @default [] */
            excluded: string[];
            /** @default false */
            only_one: boolean;
            /** @default null */
            command: string | null;
        };
        /** @enum {string} */
        Appends: "below" | "all-but-pool" | "last";
        ReceivePart: {
            told: string;
        } | {
            warning: string;
        } | {
            failed: components["schemas"]["ApiError"];
        } | "complete";
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    hello: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Hello"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DaemonInfo"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    shutdown: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Shutdown"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    audit: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GetAudit"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuditEntry"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dashboard-link": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GetDashboardLink"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DashboardLink"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dashboard-users": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListDashboardUsers"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DashboardUser"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dashboard-user-set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SetDashboardUser"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dashboard-password-set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SetDashboardPassword"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dashboard-user-remove": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RemoveDashboardUser"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dashboard-token-create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateDashboardToken"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NewDashboardToken"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dashboard-token-remove": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RemoveDashboardToken"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-discover": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DiscoverPools"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImportablePool"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ImportPool"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Imported"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ExportPool"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": string[];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-take-over": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TakeOverPool"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": string[];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "standby-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListStandby"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StandbyPool"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "standby-list-by-get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StandbyPool"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreatePool"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OpenedPool"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-add": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AddVdevs"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VdevNode"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-destroy": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DestroyPool"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Warnings"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-freeze": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["FreezePool"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-sync": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SyncPools"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SetPoolProperty"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-checkpoint": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CheckpointPool"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-reguid": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReguidPool"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-upgrade": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UpgradePools"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed2"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "label-clear": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ClearLabel"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-clear": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ClearErrors"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "device-offline": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["OfflineDevices"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "device-online": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["OnlineDevices"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed3"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "device-attach": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AttachDevice"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": number;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "device-detach": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DetachDevice"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "device-remove": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RemoveDevices"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "disk-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListDisks"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DiskEntry"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-scan": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ScanPool"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": boolean;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-ddt-prune": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PrunePool"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": number;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-prefetch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PrefetchPool"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": number;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "device-sweep": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SweepDevices"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": number[];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-reopen": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReopenPools"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "follow-by-get": {
        parameters: {
            query?: {
                from?: string;
                without_events?: boolean;
                without_snapshot?: boolean;
            };
            header?: {
                "Last-Event-ID"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": components["schemas"]["FeedMessage"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    events: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GetEvents"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventList"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "events-clear": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ClearEvents"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": number;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "scrub-schedules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GetScrubSchedules"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed4"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "scrub-schedule-set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SetScrubSchedule"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScrubSchedule"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "snapshot-schedules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GetSnapshotSchedules"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed5"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "snapshot-schedules-run": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RunSnapshotSchedules"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SnapshotsScheduled"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "share-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListShares"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed6"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "fault-inject": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["InjectFault"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": number[];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "fault-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListInjections"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Injection"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "fault-clear": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ClearInjections"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": number;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "what-if": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GetWhatIf"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed7"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "tunable-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListTunables"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TunableValue"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "tunable-set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SetTunables"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TunableValue"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "hook-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListHooks"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Hook"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "hook-add": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AddHook"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "hook-remove": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RemoveHook"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "hook-test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TestHook"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HookTested"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "volume-trace": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TakeTrace"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Traced"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    counters: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GetCounters"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Counters"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-iostat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GetIoStats"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed8"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListPools"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed9"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "vdev-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListVdevs"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed10"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GetStatus"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed11"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PoolHistory"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed12"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dataset-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListDatasets"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DatasetPage"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dataset-create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateDataset"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Created"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dataset-clone": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CloneSnapshot"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Created"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dataset-destroy": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DestroyDataset"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Destroyed"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dataset-rename": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RenameDataset"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Warnings"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dataset-promote": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Promote"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "receive-abort": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AbortReceive"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "snapshot-create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TakeSnapshots"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": string[];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dataset-rollback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Rollback"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Warnings"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "snapshot-hold": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HoldSnapshots"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "bookmark-create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateBookmark"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "property-set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SetProperties"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PropertiesSet"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "property-inherit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["InheritProperty"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PropertiesSet"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    userspace: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListSpace"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SpaceOf"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "block-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListBlocks"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ListedBlocks"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "block-share": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ShareBlocks"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PairShared"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "dataset-activity": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GetActivity"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Activity"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "file-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListFiles"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileList"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "file-restore": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RestoreFile"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RestoredFile"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "hold-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListHolds"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Listed13"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "delegation-allow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AllowPermissions"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "delegation-unallow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UnallowPermissions"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "delegation-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListPermissions"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GrantedBy"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "key-load": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LoadKey"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyLoaded"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "key-unload": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UnloadKey"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "key-change": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ChangeKey"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "key-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListKeys"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyEntry"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    mount: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Mount"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MountsChanged"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    unmount: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Unmount"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MountsChanged"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "mount-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListMounts"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Mounted"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    share: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ShareFilesystems"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SharesChanged"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    unshare: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UnshareFilesystems"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SharesChanged"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "nfs-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListNfs"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NfsListing"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "volume-attach": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AttachVolume"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AttachedVolume"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "volume-detach": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DetachVolume"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "volume-attached": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListAttached"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AttachedVolume"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "volume-reshape": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReshapeVolume"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ReshapePlan"] | null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "reshape-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListReshapes"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reshaping"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "volume-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListVolumes"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ServedVolume"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-recipes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListLabRecipes"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LabRecipe"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-presets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListLabPresets"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LabPreset"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-draft": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DraftLab"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LabDraft"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-plan": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PlanLab"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LabPlan"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-start": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["StartLab"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListLab"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LabExperiment"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-stop": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["StopLab"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ResumeLab"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-remove": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RemoveLab"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": null;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-report": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReportLab"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LabReport"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-compare": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CompareLab"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LabComparison"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-apply": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ApplyLab"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LabChanged"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-revert": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RevertLab"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LabReverted"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-advise": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AdviseLab"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LabAdvice"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "lab-layouts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListLabLayouts"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LabLayout"][];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "volume-load": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RunLoad"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Loaded"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "pool-view": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HoldView"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": components["schemas"]["HeldView"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    follow: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["FollowChanges"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": components["schemas"]["FeedMessage"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    diff: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CompareFiles"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": components["schemas"]["DiffPart"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    send: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SendSnapshot"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": components["schemas"]["SendPart"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
    "receive-stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReceiveStream"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": components["schemas"]["ReceivePart"];
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiError"];
                };
            };
        };
    };
}
